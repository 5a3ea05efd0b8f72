# btrlab: every target fails when a step of it fails. Make 3.81, that of macOS, knows no .SHELLFLAGS: a recipe that has more
# than one command in a line begins with $(STRICT).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
STRICT := set -eu -o pipefail;
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

GO ?= go
BIN := bin/btrlab
ART := artifacts
FUZZTIME ?= 20s
SLIDES := labs/guide/instructor/slides

# Packages whose tests run tasks against each other: the ones that -race has something to say about. The longest one first.
RACE := ./internal/fs/... ./internal/sched ./internal/lock/... ./internal/blockdev/... ./internal/meta/... ./internal/data/... \
	./internal/iopath/... ./internal/measure/fio ./internal/measure/experiment ./internal/measure/profile

# Packages with tests that Linux, btrfs-progs, fio or a browser judge, and those tests: those of internal/interop are no others.
INTEROP := ./internal/blockdev ./internal/blockdev/guest ./internal/hostio ./internal/meta/fstree ./internal/progs/... ./internal/measure/fio ./internal/measure/stats \
	./internal/study/timeline ./internal/site/pages ./internal/transfer
JUDGED := Linux|Chromium|BtrfsCheck|Against|OnLoop|BlockDeviceAndMounted|Converted|Clat2CSV|ReadMkfsRootdir|FirstMove|Probe|BesideFio

# Which of the long tests run: none of them (0), all (LONG=), or those that a text draws, one in N (LONG=5/text).
LONG ?= 0

.PHONY: help toolchain build dist site picture slides demo test long race grade grade-changed handout labs interop fetch kernels judges notebook notebooks bench mutants drawn fuzz lint portable ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Go from 1.21 on fetches the Go that go.mod asks for by itself, where it may. One that cannot says "unknown block type" of it.
toolchain:
	@$(STRICT) want=$$(awk '$$1 == "go" { print $$2 }' go.mod); have=$$(cd / && $(GO) env GOVERSION); local=$$(cd / && $(GO) env GOTOOLCHAIN); \
	awk -v want="$$want" -v have="$${have#go}" -v local="$$local" 'BEGIN { split(want, w, "."); split(have, h, "."); \
		older = h[1] < w[1] || h[1] == w[1] && h[2]+0 < w[2]+0; alone = local == "local" || h[1] == 1 && h[2]+0 < 21; \
		if (older && alone) { print "bad go, have go" have (local == "local" ? " with GOTOOLCHAIN=local" : "") " want go" want ": from 1.21 on, without GOTOOLCHAIN=local, it fetches that one by itself; or see https://go.dev/dl"; exit 2 } }' >&2

# Without the C library the program runs on any Linux, and takes a third of the addresses.
build: toolchain ## build bin/btrlab
	CGO_ENABLED=0 $(GO) build -o $(BIN) ./cmd/btrlab

dist: ## make what a release is: archives for Linux, macOS and Windows, packages, checksums (TARGETS="linux/amd64")
	sh cmd/btrlab/dist.sh $(ART)/dist $(TARGETS)

site: ## build the site, for any browser, from a file or any web server: artifacts/site
	mkdir -p $(ART)
	GOOS=js GOARCH=wasm $(GO) build -trimpath -ldflags='-s -w' -o $(ART)/btrlab.wasm ./cmd/btrlab-web
	$(GO) run ./cmd/btrlab-site -wasm $(ART)/btrlab.wasm -exec "$$($(GO) env GOROOT)/lib/wasm/wasm_exec.js" -out $(ART)/site

picture: build ## draw the picture of the README again
	$(BIN) replay truncate-race 11:1 --policy unlocked --out labs/reference/truncate-race.svg >/dev/null || [ $$? = 1 ] # 1: it violates

demo: ## compare the locking policies, on an image with this machine and in virtual time
	@$(STRICT) mkdir -p $(ART); at=0; \
	step() { printf '\n== %s\n' "$$*"; }; \
	took() { now=$$SECONDS; printf '(%d s)\n' $$((now - at)); at=$$now; }; \
	step "the modules that btrlab is built of, from the network if they are not here"; $(GO) list -deps ./cmd/btrlab >/dev/null; took; \
	step "build"; $(MAKE) --no-print-directory build; took; \
	step "six policies on this machine, on an image with the latency of an array of SSDs"; \
	$(BIN) mkfs --quiet --force --size 1T --label demo $(ART)/demo.img; \
	$(BIN) compare --device $(ART)/demo.img --device-model ssd-raid5 --out $(ART)/demo.html; \
	$(BIN) check $(ART)/demo.img; took; \
	step "the same job in virtual time, on eight simulated processors: the same figures everywhere"; \
	$(BIN) compare --runtime vtime --device-model ssd-raid5 --policy locked,locked+RWSEM_HANDOFF,unlocked --runtime-seconds 0.5; took; \
	printf '\nall of it: %d s\n' $$SECONDS

# Marp prints with Chromium; it turns the sandbox off by itself where it must.
MARP ?= npx --yes @marp-team/marp-cli@4.5.1
CHROME_PATH ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
slides: ## make the slides of the course: artifacts/slides, a page and a PDF a week (npx, chromium)
	@$(STRICT) if ! command -v npx >/dev/null; then echo "bad npx, have none want that of Node.js 18 or newer: it runs Marp" >&2; exit 2; fi
	@$(STRICT) if [ ! -x "$(CHROME_PATH)" ]; then echo "bad CHROME_PATH, have '$(CHROME_PATH)' want Chromium or Chrome: it prints the slides" >&2; exit 2; fi
	@$(STRICT) if [ ! -d $(SLIDES) ]; then echo "bad target, have a handout want a clone: a handout has no slides" >&2; exit 2; fi
	rm -rf $(ART)/slides
	mkdir -p $(ART)/slides
	cp -r $(SLIDES)/pictures $(SLIDES)/week-*.md $(ART)/slides
	$(STRICT) for kind in html pdf; do \
		CHROME_PATH="$(CHROME_PATH)" $(MARP) --no-stdin --no-config-file --theme $(SLIDES)/btrlab.css --allow-local-files --$$kind $(ART)/slides/*.md; \
	done
	rm $(ART)/slides/*.md

# The timeout is for a package, on a machine that a class shares. Vet is of make lint, and what -w leaves out only debuggers read.
test: ## run the tests that are not long; no root, no btrfs-progs (LONG=5/text: with a fifth of the long ones)
	@mkdir -p $(ART)
	$(STRICT) BTRLAB_INTEROP=0 BTRLAB_LONG=$(LONG) $(GO) test -vet=off -ldflags=-w -timeout 45m ./... | tee $(ART)/tests.txt
	@$(STRICT) echo; echo "the slowest packages:"
	@$(STRICT) awk '$$1 == "ok" && $$3 ~ /^[0-9.]+s$$/ { printf "%8.1f s  %s\n", $$3, $$2 }' $(ART)/tests.txt | sort -rn | sed -n 1,10p
	@$(STRICT) echo "all tests passed. Left out: $$(grep -rhE 'need\.Long\(t\)|^\[!long:' --include=*_test.go --include=*.txtar internal testdata | wc -l) long ones (make long)," \
		"those that Linux, btrfs-progs or a browser judges (make interop), and the graded labs (make labs)"

long: ## run all tests, the long ones as well; no root, no btrfs-progs
	$(MAKE) --no-print-directory test LONG=

race: ## run the tests of the concurrent packages under the race detector
	BTRLAB_LONG=$(LONG) $(GO) test -race -short -vet=off -timeout 25m $(RACE)

grade: ## grade a lab: make grade LAB=4 (DIR=folder with your files)
	@$(STRICT) if [ -z "$(LAB)" ]; then \
		echo "bad LAB, have none want a lab: make grade LAB=4 [DIR=folder]; the labs:" >&2; \
		(cd labs && printf '  %s\n' [0-9]*/) >&2; exit 2; \
	fi
	$(MAKE) --no-print-directory build
	$(BIN) lab grade $(LAB) $(if $(DIR),--dir $(DIR))

grade-changed: build ## grade each lab whose starter was changed, in a tree of make handout or lab init
	@$(STRICT) if [ ! -e HANDOUT ]; then echo "bad target, have a clone want a handout: it says what the starters were" >&2; exit 2; fi; \
	failed=0; \
	sum=$$(command -v sha256sum || echo "shasum -a 256"); \
	for lab in $$($$sum -c HANDOUT 2>/dev/null | sed -n 's,^labs/0*\([0-9]*\)-.*: FAILED$$,\1,p'); do \
		$(BIN) lab grade "$$lab" || failed=1; \
	done; \
	exit $$failed

handout: build ## make what a class is given, without solutions and history: artifacts/handout, and a zip
	rm -rf $(ART)/handout $(ART)/handout.zip
	$(BIN) lab handout $(ART)/handout

labs interop race notebooks: LONG =

labs: ## grade every solution (full marks), every planted mistake and every hostile submission (rejected)
	@$(STRICT) if [ -e HANDOUT ]; then echo "bad target, have a handout want a clone: a handout has no solutions to grade" >&2; exit 2; fi
	BTRLAB_LONG=$(LONG) BTRLAB_LABS=1 $(GO) test -count=1 -v -timeout 60m -run '^Test(SolutionsAndMutants|Hostile|Orders|Raced)$$' ./internal/study/judges ./internal/study/course

# TestOneKernel is the sample of make kernels: it asks a kernel that make kernels has fetched, if there is one.
interop: build ## let Linux, btrfs-progs and a browser judge (root, btrfs-progs, chromium, npm)
	BTRLAB_INTEROP=1 BTRLAB_LONG=$(LONG) $(GO) test -count=1 -v -run '$(JUDGED)' -timeout 45m $(INTEROP)
	BTRLAB_INTEROP=1 BTRLAB_LONG=$(LONG) $(GO) test -count=1 -v -p 1 -skip "^Test(Numbers|Kernel)" -timeout 45m ./internal/interop/...

# Where the kernels are that conform --kernel and the tests look for, by version.
BTRLAB_KERNELS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/btrlab/kernels
fetch: ## fetch kernels to lead and to compare with, without asking them (V="5.10 6.1")
	bash internal/judge/kernels/fetch.sh '$(BTRLAB_KERNELS)' $(V)

kernels: build ## fetch other kernels, boot each and let it judge: images, logs, verdicts (qemu, btrfs-progs, root; V="5.10 6.1", KEEP=1: into the reference)
	@$(STRICT) if ! command -v qemu-system-x86_64 >/dev/null; then echo "bad qemu-system-x86_64, have none want that of package qemu-system-x86: it boots the kernels" >&2; exit 2; fi
	bash internal/judge/kernels/fetch.sh '$(BTRLAB_KERNELS)' $(V)
	BTRLAB_INTEROP=1 BTRLAB_KERNELS='$(BTRLAB_KERNELS)' $(GO) test -count=1 -v -timeout 3h -run '^TestKernel' ./internal/interop/kernel -kernels.all $(if $(KEEP),-kernels.keep)

judges: build ## let fsx, fsstress, pjdfstest, xfstests and a soak judge a mounted image (root; XFSTESTS= and PJDFSTEST= name clones; SOAK=60 an hour of kills)
	SOAK='$(SOAK)' bash internal/mount/judges.sh $(BIN) $(ART)/judges '$(PJDFSTEST)' '$(XFSTESTS)'

notebook: ## open the notebooks in JupyterLab (installed in notebooks/.venv)
	bash notebooks/run.sh --open

notebooks: ## run the notebooks headless; pages go to artifacts/notebooks
	LONG=$(LONG) bash notebooks/run.sh $(ART)/notebooks

bench: build ## run the long tests, and measure the numbers of the project, as ratios in alternating rounds
	$(MAKE) --no-print-directory long
	$(BIN) compare --policy locked,unlocked,range-lock --device-model ssd-raid5 --rounds 5 --runtime-seconds 3
	$(STRICT) for policy in fsync-5.17 fsync-5.18 fsync-commit; do $(BIN) crash --bounded 2 --policy $$policy; done
	BTRLAB_NUMBERS=1 $(GO) test -count=1 -v -p 1 -timeout 90m -run '^TestNumbers' ./internal/interop/...
	$(GO) test -count=1 -v -timeout 60m -run '^Test(Inside|OtherPath)$$' ./internal/study/handout -handout.all
	BTRLAB_INTEROP=1 $(GO) test -count=1 -v -timeout 20m -run '^TestNowaitPolicies$$' ./internal/interop/kernel -policies.runtime 30s
	BTRLAB_INTEROP=1 $(GO) test -count=1 -v -timeout 30m -run '^TestFsyncLog$$' ./internal/interop/kernel -fsynclog.sequences 2000
	BTRLAB_INTEROP=1 $(GO) test -count=1 -timeout 30m -run '^TestTwin$$' ./internal/interop/kernel -twin.sequences 300
	BTRLAB_INTEROP=1 $(GO) test -count=1 -timeout 30m -run '^TestMakers$$' ./internal/interop/progs -makers.all
	BTRLAB_INTEROP=1 $(GO) test -count=1 -v -timeout 40m -run '^TestMount(Mapped|Faults)$$' ./internal/interop/mount -mount.mapped 100000 -mount.faults 200
	$(GO) test -count=1 -v -timeout 60m -run '^TestFaultsAnywhere$$' ./internal/cli -faults 200
	BTRLAB_INTEROP=1 $(GO) test -count=1 -v -timeout 60m -run '^TestDamagesLinux$$' ./internal/progs/repair -damages.one 112 -damages.several 60 -damages.seed 41
	$(GO) test -run '^$$' -bench '^BenchmarkNowaitDirectOverwrite$$' ./internal/fs
	$(GO) test -run '^$$' -bench . ./internal/sched/explore ./internal/study/scenario ./internal/sched/vtime
	BTRLAB_PEERS=$(abspath $(ART))/peers $(GO) test -run '^$$' -bench '^BenchmarkPeers$$' -benchtime 5x -timeout 20m ./internal/sched/explore
	$(GO) test -run '^$$' -bench '^BenchmarkCheck/(writes|reads|torn)/ops=(4|60)$$|^BenchmarkSmall' ./internal/judge/oracle
	$(GO) test -count=1 -v -timeout 20m -run '^TestRandomPrograms$$' ./internal/sched/explore -programs 20000
	$(GO) test -count=1 -v -timeout 60m -run '^Test(Matrix|TooMany|Estimate|SchedulesNeeded)$$' ./internal/study/scenario -matrix.full
	$(MAKE) --no-print-directory drawn N=1000 SEED=bench

mutants: ## plant every fault of the catalogue: the tests must notice (half an hour; ID=regexp, SAMPLE=20)
	$(STRICT) $(GO) test -count=1 -v -timeout 5h -run '^TestPlanted$$' ./internal/judge/mutants -plant '$(or $(ID),.)' -sample $(or $(SAMPLE),0) \
		-jobs $(or $(JOBS),2) -report $(CURDIR)/$(ART)/mutants.txt

drawn: ## plant faults that a seed draws from all that ships (N=100 SEED=text ROOMS=regexp, or ONLY=file of identities; SHARD=3/16 OUT=file)
	$(STRICT) $(GO) test -count=1 -v -timeout 10h -run '^TestDrawn$$' ./internal/judge/mutants/drawn -draw $(or $(N),100) -seed '$(SEED)' -rooms '$(ROOMS)' $(if $(ONLY),-only $(abspath $(ONLY))) \
		$(if $(SHARD),-shard $(SHARD) -out '$(abspath $(OUT))') \
		-least $(or $(LEAST),0.4) -jobs $(or $(JOBS),2) -report $(CURDIR)/$(ART)/drawn.txt

fuzz: ## fuzz every target for FUZZTIME each
	$(STRICT) $(GO) list ./... | while read -r pkg; do \
		list=$$($(GO) test -list '^Fuzz' $$pkg); \
		for f in $$(grep '^Fuzz' <<<"$$list" || true); do \
			echo "== $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

lint: portable ## gofmt, go vet, staticcheck, errorlint, a tidy go.mod, the other systems
	@$(STRICT) out=$$(find cmd internal labs notebooks/_lab -name '*.go' -not -path 'labs/_grade/*' -exec gofmt -l {} +); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(STRICT) $(GO) tool go-errorlint -test=false -asserts=false ./cmd/... ./internal/... # errors are compared with errors.Is; those of labs/kit come as they are
	$(GO) mod tidy -diff

# Every package builds everywhere. What needs Linux is a file with a build tag: block devices, O_DIRECT, the lookup of
# mounts and the short sleep. Under js an image is in memory, and there is no progress bar. Tests run
# on Linux only; tag portable gives them the image files of the other systems.
portable: ## build everything for macOS, Windows and the browser; test the image files of those systems
	$(STRICT) for target in darwin/arm64 windows/amd64 js/wasm; do \
		echo "== $$target"; GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0 $(GO) build -trimpath ./...; \
	done
	$(GO) test -tags portable ./internal/blockdev

ci: ## everything that the project's CI runs
	bash .ci/run

clean: ## delete what was built
	rm -rf bin $(ART) notebooks/_kernel notebooks/.venv notebooks/.jupyter

// Two tasks with three sections each over one mutex, by relacy's random scheduler: what BenchmarkPeers measures.
#include <relacy/relacy.hpp>
#include <cstdlib>
#include <iostream>
#include <sstream>

struct sections : rl::test_suite<sections, 2> {
	rl::mutex mu;

	void thread(unsigned) {
		for (int i = 0; i != 3; ++i) {
			mu.lock($);
			mu.unlock($);
		}
	}
};

int main(int argc, char **argv) {
	std::ostringstream quiet;
	rl::test_params p;
	p.search_type = rl::random_scheduler_type;
	p.iteration_count = std::atoll(argv[argc - 1]);
	p.output_stream = p.progress_stream = &quiet;
	if (!rl::simulate<sections>(p)) {
		std::cerr << quiet.str();
		return 1;
	}
}

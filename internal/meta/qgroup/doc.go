// Package qgroup keeps quota groups: what each subvolume has, and how much it may.
//
// A qgroup counts extents, data and tree blocks, whole and once each: rfer has those that its
// subvolumes reach, excl those that no other subvolume reaches. Level 0 has one qgroup for each
// subvolume, with its id; a qgroup above counts what its members reach together. The quota tree has
// a status, and for each qgroup its counts, its limits and its relations.
//
// A write that may not go over a limit reserves first. With a handle's End or an ordered extent's
// completion the reservation goes to the running transaction; the commit gives it back in the step
// in which the counts grow:
//
//	Data          ReserveData         LendOrdered: CommitData      \
//	MetaPrealloc  ReserveMeta         Convert: MetaPertrans         > Settle: reservations go, rfer and excl follow
//	MetaPertrans                      until the commit             /
//
// Over a limit the answer is EDQUOT, after one flush: the dirty data of the subvolume is written
// back and a commit turns what was promised into what is there, which is mostly much less.
//
// The commit (Settle) takes the extents whose references the transaction has changed, and looks up
// which subvolumes reached each in the trees of the last commit, and which do now. It is the only
// one that changes the counts, so they are those of a committed state, always.
//
// Simple quotas (squota) count who has allocated an extent: a data extent says so in its item, a
// tree block in its header. The counts follow the delayed references as they are run, no tree is
// asked, and nothing that was there before they were turned on is counted. A subvolume that is
// deleted keeps its group as long as others refer to what it allocated.
//
// Lock order:
//
//	qgroup_flush                     wait for another task's flush: where space_ticket is
//	  transaction
//	    qgroup_ioctl_lock            Manager: turns quotas on and off
//	      tree_*                     the quota tree
//	        qgroup_lock              Quota.mu, a leaf: counts, limits, reservations
//
// Invariants:
//   - what a subvolume's qgroup has reserved of a type, each qgroup above it has reserved as well;
//   - at rest nothing is reserved (CheckQuiescent);
//   - the status is of the last commit's generation, or Linux takes the counts for inconsistent.
//
// Model: fs/btrfs/qgroup.c with full accounting; labs/reference 5.4. Differences:
//   - old_roots is looked up at commit, in the trees of the last commit, not when a reference is
//     queued;
//   - a rescan is one step of a commit, with no handle open, not a task beside the writers: an
//     image is never left in the middle of one, and one that Linux left there is counted again by
//     the first commit;
//   - a snapshot does not inherit: the commit that makes one counts again from the start;
//   - a deleted subvolume reaches what it has not dropped yet, also in the trees of the commit that
//     is being made (Linux takes it out of those, BTRFS_ROOT_DELETING), so an extent that it loses
//     piece by piece is lost once;
//   - a task that has waited for another's flush flushes as well before it gives up; a punch of a
//     hole and a delete reserve nothing;
//   - no qgroup above level 0 is made here, those of Linux are kept right; with simple quotas a new
//     subvolume belongs to those that the one with its name belongs to;
//   - the committer owes what it cannot find out (a damaged image) as Linux does: the status says
//     inconsistent.
package qgroup

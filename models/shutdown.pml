/* How a run ends: the close protocol as a model that Spin (https://spinroot.com) checks exhaustively.
 *
 * docs/shutdown-model.md explains model and results to a reader who has never seen Spin, and
 * tests/models/test_shutdown_model.py runs every check. By hand, in an empty folder:
 *
 *     spin -a -DWORKERS=2 path/to/models/shutdown.pml && gcc -O2 -w -DSAFETY -o pan pan.c && ./pan
 *
 * Three variants of one situation: the trainer has had enough while its workers still step.
 *
 *     -DSHARED_QUEUE            one queue for all workers, then join: Spin finds the deadlock
 *     -DSHARED_QUEUE -DCANCEL   the same with cancel_join_thread(): Spin finds the lost message
 *     (neither)                 Stepherd: a bell, a block and a leash for each worker: Spin finds nothing
 */

#ifndef WORKERS
#define WORKERS 2
#endif

#ifdef SHARED_QUEUE
#include "shared_queue.pml"
#else
#include "bell_and_leash.pml"
#endif

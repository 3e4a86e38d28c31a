/* The historical design: all workers put their steps on one multiprocessing.Queue (ML-Agents before its fix).
 *
 * Such a queue has three parts. put() never blocks: it appends to a buffer inside the worker. A feeder thread in the
 * worker carries the buffer into a bounded pipe that all workers share. And a process that has put something may not
 * exit before its feeder has emptied the buffer, unless it has called cancel_join_thread().
 *
 *     worker 0 -- put --> buffer 0 -- feeder 0 --.
 *     worker 1 -- put --> buffer 1 -- feeder 1 --+--> pipe -- get --> trainer
 *     worker 2 -- put --> buffer 2 -- feeder 2 --'
 *
 * Options: PIPE_ITEMS  how many steps fit into the pipe; 0: one step is larger than the pipe (1)
 *          CANCEL      the workers call cancel_join_thread() before they exit
 *          RAISES      an env may raise: its worker puts the error on the queue and exits; only errors are counted
 */

#ifndef PIPE_ITEMS
#define PIPE_ITEMS 1
#endif

mtype = { STEP, CLOSE, RESULT, ERROR };

chan commands[WORKERS] = [2] of { mtype };    /* a pipe to each worker; never full here */
chan buffer[WORKERS] = [2] of { mtype };      /* unbounded in Python, never full here */
chan pipe = [PIPE_ITEMS] of { byte, mtype };
bool exited[WORKERS];

#ifdef RAISES
#define counts(kind) (kind == ERROR)
#else
#define counts(kind) true
#endif
byte lost = 0;  /* messages that a worker has put and the trainer has not got */

inline put(w, kind)
{
    atomic {
        buffer[w] ! kind;
        if
        :: counts(kind) -> lost++
        :: else
        fi;
        printf("worker %d: puts its %e\n", w, kind)
    }
}

inline got(w, kind)
{
    atomic {
        if
        :: counts(kind) -> lost--
        :: else
        fi;
        printf("trainer: gets the %e of worker %d\n", kind, w)
    }
}

proctype worker(byte w)
{
    do
    :: commands[w] ? STEP ->
        if
        :: put(w, RESULT)
#ifdef RAISES
        :: put(w, ERROR); break
#endif
        fi
    :: commands[w] ? CLOSE ->
        printf("worker %d: leaves its loop\n", w);
        break
    od;
#ifndef CANCEL
    empty(buffer[w]);  /* the exit of the process joins the feeder */
#endif
    atomic { exited[w] = true; printf("worker %d: has exited\n", w) }
}

proctype feeder(byte w)
{
    mtype kind;
    do
    :: buffer[w] ? <kind> ->
        if
        :: atomic { pipe ! w, kind -> buffer[w] ? _; printf("feeder %d: writes the %e into the pipe\n", w, kind) }
        :: exited[w] -> break  /* a daemon thread ends with its process, and so does the buffer */
        fi
    :: exited[w] -> break
    od
}

active proctype trainer()
{
    mtype kind;
    byte w;
    byte from;
    byte taken = 0;
    for (w : 0 .. WORKERS - 1) {
        commands[w] ! STEP;
        printf("trainer: asks worker %d for a step\n", w)
    }

    /* The training loop; it may be over after any step. */
    do
    :: break
    :: taken < WORKERS ->
        pipe ? from, kind;
        got(from, kind);
        taken++;
        if
        :: kind == ERROR -> break
        :: else -> commands[from] ! STEP; printf("trainer: asks worker %d for a step\n", from)
        fi
    od;

    /* close(): from here on, nobody reads the queue. */
    for (w : 0 .. WORKERS - 1) {
        commands[w] ! CLOSE;
        printf("trainer: tells worker %d to close and joins it\n", w);
        exited[w]
    }

    /* Kinder than the original was: it still reads everything that has reached the pipe. */
    do
    :: pipe ? from, kind -> got(from, kind)
    :: timeout -> break
    od;
    assert(lost == 0)
}

init
{
    byte w;
    atomic {
        for (w : 0 .. WORKERS - 1) { run worker(w); run feeder(w) }
    }
}

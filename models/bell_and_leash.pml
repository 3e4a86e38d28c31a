/* Stepherd's close protocol: the workers share nothing, and every wait of the parent has a deadline.
 *
 *     parent: the manager                                       child: the worker
 *         parent_end ====== bell: commands -->, <-- answers ====== worker_end
 *                    ------ block: request -->, <-- data, done ---
 *              leash ------ when it closes, the kernel kills -----> its group: the worker and its simulator
 *
 * Both sides are tables. A row is one step that nothing interrupts: `guard -> what happens`. A process whose rows
 * are all closed waits. Between any two rows of anybody, anything of this may happen:
 *
 *     time     A deadline may strike at any moment: nothing found here depends on how long one is. A tick of the
 *              wait that finds nothing changes nothing, so it has no row.
 *     crash    A worker may die. SIGTERM has no row of its own: a worker that obeys it dies now, one that ignores it
 *              does not, and the ladder may rely on neither.
 *     freeze   A worker may stop for good: SIGSTOP, a hang in step or close, native code that holds the GIL.
 *     raise    Env code may raise while it is built or steps. (What close() raises travels as a plain message.)
 *     parent   It may be killed.
 *     kernel   A group that is killed is condemned at once, but may die much later, even after close().
 *
 * What Spin looks for: a parent that is stuck, a message that is lost, data taken for what it is not, an action that
 * is accounted for twice or never, a worker or simulator that outlives the parent or its close(); and, in a second
 * pass, any cycle: a run without cycles comes to an end, whatever the scheduler does.
 *
 * Options: STEPS         how many actions one worker process may get (1)
 *          RESTARTS      how many failed workers may be replaced: 0 or 1 (0)
 *          BELL          how many answers fit into a bell (STEPS + 1: a ring for each action, and the last words)
 *          COMMANDS      the same, for the other direction (2: a ring and the request to close)
 *          TWO_SPEEDS    the manager may also look into the block unasked, and a ring may then be left out
 *          PARENT_LIVES  the parent is not killed
 *          NO_FAULTS     nor does a worker crash, freeze or raise
 *          BUG_...       takes one safety mechanism away: Spin must find what it was good for
 *          LIMIT_...     leaves the ground on which the design stands: Spin must find that, too
 *
 * A value that nobody reads any more is reset, so that states which differ in nothing else count once.
 */

#ifndef STEPS
#define STEPS 1
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef BELL
#define BELL (STEPS + 1)
#endif
#ifndef COMMANDS
#define COMMANDS 2
#endif
#ifdef NO_FAULTS
#define PARENT_LIVES
#define faults false
#else
#define faults true
#endif

/* A replacement is a new process with its own bell, block and leash. What belongs to a process has the index p: the
 * first WORKERS start at once, the next one is the replacement. What the manager knows about a place in its pool has
 * the index w. */
#define PROCESSES (WORKERS + RESTARTS)
#if RESTARTS > 0
#define REPLACEMENT WORKERS
#else
#define REPLACEMENT 0  /* never used */
#endif

mtype = { RING, CLOSE, READY, FAILED, CLOSED_DOWN };   /* transport/bell.py, without the job and the notes */
chan commands[PROCESSES] = [COMMANDS] of { mtype };
chan answers[PROCESSES] = [BELL] of { mtype };
bool parent_end[PROCESSES];                            /* this end of the bell is open */
bool worker_end[PROCESSES];
byte request[PROCESSES];                               /* transport/control.py: the number of the last action */
byte done[PROCESSES];                                  /* the number of the last action that was answered */
byte data[PROCESSES];                                  /* the action whose outcome the arrays hold */
bool leash[PROCESSES];                                 /* its only write end is open */
bool armed[PROCESSES];                                 /* the kernel was told to kill the group when it closes */
bool simulator[PROCESSES];                             /* what the worker has started lives */

mtype:place = { UNBORN, BORN, BUILT, HEARING, STEPPING, DATA_WRITTEN, NUMBER_WRITTEN, CLOSING, CLOSED_ENVS, RAISING,
                LEAVING, LINGERING, FROZEN, CONDEMNED, DEAD };
mtype:place at[PROCESSES];                             /* where the worker is in its code */

mtype:status = { STARTING, FREE, BUSY, ANSWERED, GONE };
mtype:status status[WORKERS];                          /* manager/step_queue.py, manager/env_worker.py */
byte process[WORKERS];                                 /* who fills the place: the generation */
byte spare = RESTARTS;                                 /* manager/restarts.py: what is left of the budget */
byte owed = 0;                                         /* the ledger: actions sent, minus those accounted for */
bool on_its_way[WORKERS];                              /* its answer had been rung for when the drain began */

mtype:phase = { RUNNING, DRAINING, ASKED, TERMED, KILLED, CLOSED, PARENT_DIES, PARENT_DEAD };
mtype:phase phase = RUNNING;                           /* how far the parent is */

hidden byte lost;                                      /* verdicts; not part of the state */
hidden byte mistaken;
hidden byte orphan;
hidden byte parent_is_stuck;

#define lives(p) (at[p] != UNBORN && at[p] != DEAD)
#define healthy(p) (lives(p) && at[p] != FROZEN && at[p] != CONDEMNED)
#define serves (phase == RUNNING || phase == DRAINING)
#define over (phase == CLOSED || phase == PARENT_DEAD)

#if PROCESSES == 1
#define nobody_lives (!lives(0))
#elif PROCESSES == 2
#define nobody_lives (!lives(0) && !lives(1))
#elif PROCESSES == 3
#define nobody_lives (!lives(0) && !lives(1) && !lives(2))
#else
#define nobody_lives (!lives(0) && !lives(1) && !lives(2) && !lives(3))
#endif

inline forget(messages)
{
    do
    :: len(messages) > 0 -> messages ? _
    :: else -> break
    od
}

/* ------------------------------------------------------------------------- process/child.py, process/leash.py */

inline start(p)
{
    at[p] = BORN; parent_end[p] = true; worker_end[p] = true; leash[p] = true; armed[p] = false
}

/* SIGKILL to the group: the worker, and what it has started. */
inline condemn(p)
{
#ifndef BUG_NO_GROUP
    simulator[p] = false;
#endif
    if
    :: lives(p) -> at[p] = CONDEMNED
    :: else
    fi
}

/* The parent kills while it lives: by signal, then by slipping the leash. */
inline kill(p)
{
#ifndef BUG_NO_KILL
    condemn(p);
#endif
    leash[p] = false
}

/* The parent is gone, and the leash does it alone. Nothing is sent for one that closed before it was armed: hence the
 * worker's first read. */
inline slip(p)
{
    if
#ifndef BUG_NO_LEASH
    :: leash[p] && armed[p] -> condemn(p)
#endif
    :: else
    fi;
    leash[p] = false
}

/* ---------------------------------------------------- worker/__main__.py, worker/boot.py, worker/serve.py */

#define has_room(p) (len(answers[p]) < BELL)

#if defined(LIMIT_FREEZE_AT_BIRTH) || defined(PARENT_LIVES)
#define may_freeze(p) true
#else
#define may_freeze(p) armed[p]
#endif

#ifdef BUG_RESET_IS_END
bool reset[PROCESSES];
#endif

/* Linux tells the parent of a command that was never heard by an error (ECONNRESET) which comes before the answers
 * still in the bell. Bell.hear reads on, so there is no row for it. */
inline hang_up(p)
{
#ifdef BUG_RESET_IS_END
    reset[p] = reset[p] || len(commands[p]) > 0;
#endif
    forget(commands[p]);
    worker_end[p] = false
}

/* Last words: the bell must have room for them, for a worker waits for nothing but commands. */
inline say(p, kind)
{
    if
    :: parent_end[p] && has_room(p) -> answers[p] ! kind
    :: parent_end[p] && !has_room(p) -> lost = true; assert(!lost)
    :: !parent_end[p]
    fi
}

proctype worker(byte p)
{
    byte n;  /* the action it works on */

end_worker:
    do
    /* The leash first: arm it, then one read; end of file means that the parent is gone already. */
    :: d_step { at[p] == BORN && leash[p] -> armed[p] = true; simulator[p] = true; at[p] = BUILT }
#ifndef BUG_NO_LEASH_READ
    :: d_step { at[p] == BORN && !leash[p] -> at[p] = LEAVING }
#else
    :: d_step { at[p] == BORN && !leash[p] -> simulator[p] = true; at[p] = BUILT }
#endif
    :: d_step { at[p] == BUILT && parent_end[p] -> answers[p] ! READY; at[p] = HEARING }

    /* serve: hear, see whether an action was asked for, step, write the data, then the number, then ring. A bell
     * full of rings says enough. */
    :: d_step { at[p] == HEARING && commands[p] ? [RING] ->
                commands[p] ? RING;
                if
                :: request[p] != done[p] -> n = request[p]; at[p] = STEPPING
                :: else
                fi }
#if defined(BUG_RING_BEFORE_DATA)
    :: d_step { at[p] == STEPPING && parent_end[p] -> done[p] = request[p]; answers[p] ! RING; at[p] = DATA_WRITTEN }
    :: d_step { at[p] == DATA_WRITTEN -> data[p] = n; n = 0; at[p] = HEARING }
#elif defined(BUG_RING_BEFORE_NUMBER)
    :: d_step { at[p] == STEPPING && parent_end[p] -> data[p] = n; n = 0; answers[p] ! RING; at[p] = DATA_WRITTEN }
    :: d_step { at[p] == DATA_WRITTEN -> done[p] = request[p]; at[p] = HEARING }
#else
    :: d_step { at[p] == STEPPING -> data[p] = n; n = 0; at[p] = DATA_WRITTEN }
    :: d_step { at[p] == DATA_WRITTEN -> done[p] = request[p]; at[p] = NUMBER_WRITTEN }
    :: d_step { at[p] == NUMBER_WRITTEN && parent_end[p] ->
                if
                :: has_room(p) -> answers[p] ! RING
                :: else
                fi;
                at[p] = HEARING }
#endif
#ifdef TWO_SPEEDS
    :: d_step { at[p] == NUMBER_WRITTEN -> at[p] = HEARING }  /* the manager seemed to be awake */
#endif

    /* Told to close, or the parent is gone: env.close(), a last word on how it went, and the bell closes. The
     * process may linger: exit hooks, threads that are no daemons. */
    :: d_step { at[p] == HEARING && commands[p] ? [CLOSE] -> commands[p] ? CLOSE; at[p] = CLOSING }
    :: d_step { at[p] == HEARING && !parent_end[p] -> at[p] = CLOSING }
    :: d_step { at[p] == CLOSING -> simulator[p] = false; at[p] = CLOSED_ENVS }
    :: d_step { at[p] == CLOSED_ENVS -> say(p, CLOSED_DOWN); at[p] = LEAVING }
    :: d_step { at[p] == LEAVING -> hang_up(p); at[p] = LINGERING }

    /* The env raised: the traceback is the last word. */
    :: d_step { faults && (at[p] == BUILT || at[p] == STEPPING) -> n = 0; at[p] = RAISING }
    :: d_step { at[p] == RAISING -> say(p, FAILED); at[p] = LEAVING }

    /* BellBroken: nobody is there to ring for. */
    :: d_step { (at[p] == BUILT || at[p] == NUMBER_WRITTEN) && !parent_end[p] -> at[p] = LEAVING }

    /* Death, expected or not, and the freeze. A crash hides no hang from Spin: who may crash may freeze as well, and
     * what is frozen wakes nobody. */
    :: d_step { (at[p] == LINGERING || at[p] == CONDEMNED || faults && healthy(p)) ->
                hang_up(p); n = 0; at[p] = DEAD }
    :: d_step { faults && healthy(p) && may_freeze(p) -> n = 0; at[p] = FROZEN }
    od
}

/* ------------------------------- manager/subprocess_env_manager.py, manager/supervisor.py, manager/ending.py */

#define P(w) process[w]
#define open(w) parent_end[P(w)]
#ifdef BUG_RESET_IS_END
#define rung(w) (len(answers[P(w)]) > 0 && !reset[P(w)])
#else
#define rung(w) (len(answers[P(w)]) > 0)
#endif
#define answered(w) (status[w] == BUSY && done[P(w)] == request[P(w)])
#define last_words(w) (answers[P(w)] ?? [FAILED] || answers[P(w)] ?? [CLOSED_DOWN])

#ifdef TWO_SPEEDS
#define looks(w) answered(w)
#else
#define looks(w) false
#endif
#ifdef BUG_NO_DRAIN
#define listens (phase != DRAINING)
#else
#define listens true
#endif

/* What lies in the bell is heard before its sender is given up. */
#if defined(BUG_NO_DRAIN)
#define heard_out(w) (phase == DRAINING || !rung(w))
#elif defined(BUG_DEATH_FIRST)
#define heard_out(w) (ended(w) || !rung(w))
#else
#define heard_out(w) (!rung(w))
#endif

#ifdef BUG_NO_TIMEOUT
#define time_is_up false
#else
#define time_is_up true
#endif

/* The bell has closed, or the exit is known, which implies it. */
#define ended(w) (!worker_end[P(w)])
/* A request has a deadline, idleness has none. The manager then waits a moment for the worker's stack; nothing is
 * decided in it, so it has no row. */
#define overdue(w) (time_is_up && (status[w] == STARTING || status[w] == BUSY))

/* An action ends exactly once: delivered, or written off and counted. */
inline account(w)
{
    assert((status[w] == BUSY || status[w] == ANSWERED) && owed > 0);
    owed--;
    on_its_way[w] = false
}

inline mark(w)
{
    if
    :: answered(w) -> status[w] = ANSWERED
    :: else
    fi
}

/* recv, drain: the answer goes to the caller. One that its worker has outlived is still in the block. */
inline deliver(w)
{
    if
    :: status[w] == ANSWERED ->
        mistaken = data[P(w)] != request[P(w)];
        assert(!mistaken);
        account(w);
        status[w] = (open(w) -> FREE : GONE)
    :: else
    fi
}

inline write_off(w)
{
    if
    :: status[w] == BUSY || status[w] == ANSWERED ->
        lost = on_its_way[w];
        assert(!lost);
        account(w)
    :: else
    fi;
    status[w] = GONE
}

inline drop_block(p)
{
    request[p] = 0; done[p] = 0; data[p] = 0
}

/* Supervisor._fail; never blocks. A drain keeps what was answered until it is delivered; a run that goes on writes it
 * off with the rest. */
inline fail(w)
{
    lost = last_words(w);
    assert(!lost);
#ifndef BUG_NUMBER_FORGOTTEN
    mark(w);
#endif
    if
    :: phase == DRAINING && status[w] == ANSWERED
    :: else -> write_off(w); drop_block(P(w))
    fi;
    kill(P(w));
    forget(answers[P(w)]);
    parent_end[P(w)] = false
}

inline hear(w)
{
    if
    :: answers[P(w)] ? [READY] ->
        answers[P(w)] ? READY;
        if
        :: serves -> status[w] = FREE
        :: else
        fi
    :: answers[P(w)] ? [RING] ->
        answers[P(w)] ? RING;
        if
        :: serves -> mark(w)
        :: else
        fi
    :: answers[P(w)] ? [FAILED] ->
        answers[P(w)] ? FAILED;
        if
        :: serves -> fail(w)
        :: else
        fi
    :: answers[P(w)] ? [CLOSED_DOWN] ->
        answers[P(w)] ? CLOSED_DOWN
    fi
}

inline give_up(w)
{
#ifdef BUG_LATE_IS_KEPT
    if
    :: ended(w) -> fail(w)
    :: !ended(w) && status[w] == BUSY -> account(w); status[w] = FREE
    :: !ended(w) && status[w] != BUSY -> fail(w)
    fi
#else
    fail(w)
#endif
}

#ifdef BUG_NO_BUDGET
#define ONE_RESTART 0
#else
#define ONE_RESTART 1
#endif

/* Supervisor.turn: what the one wait can wake for, as far as worker w is concerned; then what never waits: to take
 * its answer, to send it an action, to replace it. To ring never blocks; that a worker could not be reached shows
 * in its end. */
#define ATTEND(w) \
    :: d_step { listens && open(w) && rung(w) -> hear(w) } \
    :: d_step { serves && open(w) && looks(w) -> mark(w) } \
    :: d_step { serves && open(w) && heard_out(w) && (ended(w) || overdue(w)) -> give_up(w) } \
    :: d_step { phase == RUNNING && status[w] == ANSWERED -> deliver(w) } \
    :: d_step { phase == RUNNING && status[w] == FREE && request[P(w)] < STEPS -> \
                request[P(w)]++; status[w] = BUSY; owed++; \
                if \
                :: can_ring(w) -> commands[P(w)] ! RING \
                :: else \
                fi } \
    :: d_step { phase == RUNNING && status[w] == GONE && spare > 0 && !lives(REPLACEMENT) -> \
                spare = spare - ONE_RESTART; process[w] = REPLACEMENT; status[w] = STARTING; start(REPLACEMENT) }

#define can_ring(w) (open(w) && !ended(w) && len(commands[P(w)]) < COMMANDS)
#define silent(w) (!open(w) || !rung(w))

#if WORKERS == 1
#define nobody_busy (status[0] != BUSY)
#define all_silent silent(0)
#elif WORKERS == 2
#define nobody_busy (status[0] != BUSY && status[1] != BUSY)
#define all_silent (silent(0) && silent(1))
#else
#define nobody_busy (status[0] != BUSY && status[1] != BUSY && status[2] != BUSY)
#define all_silent (silent(0) && silent(1) && silent(2))
#endif

#ifdef BUG_NO_DRAIN
#define last_look true
#else
#define last_look all_silent
#endif
#ifdef BUG_NO_LAST_LOOK
#define last_look_before_the_kill true
#else
#define last_look_before_the_kill all_silent
#endif

/* What was answered and not taken is written off, and from here on, only actions in flight are still expected. */
inline ask_all()
{
    for (w : 0 .. WORKERS - 1) {
        if
        :: status[w] != BUSY -> write_off(w); drop_block(P(w))
        :: else
        fi;
        if
        :: can_ring(w) -> commands[P(w)] ! CLOSE
        :: else
        fi
    }
    w = 0
}

proctype manager()
{
    byte w;

    do
    ATTEND(0)
#if WORKERS > 1
    ATTEND(1)
#endif
#if WORKERS > 2
    ATTEND(2)
#endif

    /* drain(), close(), process/shutdown.py. The run may end at any moment, drained or, after an exception, not. Then
     * each rung has one deadline, and bells are heard all the while. A rung is one row for all workers: they cannot
     * see each other, so the order among them shows to nobody. */
    :: d_step { phase == RUNNING ->
                for (w : 0 .. WORKERS - 1) {
                    on_its_way[w] = status[w] == ANSWERED || answered(w) && (rung(w) || looks(w))
                }
                w = 0; phase = DRAINING }
    :: d_step { phase == RUNNING -> ask_all(); phase = ASKED }
    :: d_step { phase == DRAINING && (nobody_busy || time_is_up && last_look) ->
                for (w : 0 .. WORKERS - 1) {
                    if
                    :: looks(w) -> mark(w)
                    :: else
                    fi;
                    deliver(w)
                }
                ask_all(); phase = ASKED }
#ifdef BUG_SEND_BLOCKS
    :: phase == DRAINING && open(0) && !ended(0) -> commands[P(0)] ! CLOSE; phase = ASKED
#endif
    :: d_step { phase == ASKED && (nobody_lives || time_is_up) -> phase = TERMED }
    :: d_step { phase == TERMED && (nobody_lives || time_is_up) && last_look_before_the_kill ->
                for (w : 0 .. WORKERS - 1) {
                    lost = open(w) && last_words(w);
                    assert(!lost);
                    kill(P(w))
                }
                w = 0; phase = KILLED }
    :: d_step { phase == KILLED && (nobody_lives || time_is_up) ->
                for (w : 0 .. WORKERS - 1) {
                    write_off(w);
                    drop_block(P(w));
                    forget(answers[P(w)]);
                    parent_end[P(w)] = false
                }
                w = 0; phase = CLOSED }

    :: phase == CLOSED || phase == PARENT_DIES || phase == PARENT_DEAD -> break
#ifndef PARENT_LIVES
    /* To be killed is a way out of any wait, so Spin itself would not call a parent stuck that may be killed. */
    :: else -> parent_is_stuck = true; assert(!parent_is_stuck)
#endif
    od
}

/* SIGKILL for the parent: the kernel closes what it held; what it knew is gone. */
proctype fate()
{
    byte i;

end_spared:
    d_step {
        !over ->
        for (i : 0 .. PROCESSES - 1) { parent_end[i] = false; forget(answers[i]) }
        for (i : 0 .. WORKERS - 1) { status[i] = GONE; process[i] = 0; on_its_way[i] = false }
        i = 0; owed = 0; spare = 0; phase = PARENT_DIES
    }
    d_step {
        phase == PARENT_DIES ->
        for (i : 0 .. PROCESSES - 1) { slip(i); drop_block(i) }
        i = 0; phase = PARENT_DEAD
    }
}

init
{
    byte i;

    d_step {
        for (i : 0 .. PROCESSES - 1) { at[i] = UNBORN }
        for (i : 0 .. WORKERS - 1) { process[i] = i; status[i] = STARTING; start(i) }
        i = 0
    }
    atomic {
        for (i : 0 .. PROCESSES - 1) { run worker(i) }
        run manager();
#ifndef PARENT_LIVES
        run fate();
#endif
        i = 0
    }

    /* Rest: nothing can move any more. */
    atomic {
        timeout && over ->
        assert(owed == 0);
        for (i : 0 .. PROCESSES - 1) {
            orphan = lives(i) || simulator[i];
            assert(!orphan)
        }
    }
}

/*
 * The lease of one namespace: who leads, while the store loses answers, clocks drift and processes are paused.
 *
 * Guarantee, checked in every reachable state:
 *   I-1  At no instant is the lease valid for two processes. "Valid" is "before valid_until", which includes the time
 *        after renew_deadline in which hooks finish; is_leader() is true for a part of it.
 *   I-2  Leaderships begin in the order of their epochs, each epoch is led by at most one process, and no write of a
 *        process puts a lower epoch in the place of a higher one.
 *   I-3  A process leads only under a grant that it issued itself and that was applied.
 *
 * Assumption: each clock runs, at every moment, within `drift` of true time; the store's compare-and-swap is atomic;
 * what lies under terms/ is never changed or removed. The record itself may be damaged: LOSSES times it is lost,
 * ROLLBACKS times it is put back, bytes and version, to what it was under an earlier epoch.
 *
 * Not guaranteed, or not modelled:
 *   - A record put back to an earlier write of the *same* epoch. A follower that has watched that write since it was
 *     new cannot know that there were others: with -DROLLBACK_WITHIN_TERM the search finds two leaders.
 *   - A record with unreadable bytes: it is treated as a lost one, but for the condition of the write that rebuilds
 *     it.
 *   - Progress: every step may be put off for ever. A crash is a process that takes no further step; started again it
 *     has a new uid, and is another process.
 *   - E-6..E-8, E-10..E-12: requests by outsiders, rank, worker records, breaker, mandates, fork. Anybody may stand as
 *     soon as the lease allows it, so an order among candidates only takes behaviour away. Without outsiders every
 *     write is by one who leads, led or stands, and the version of the record does for `leaderWriteId` as well.
 *   - renew_deadline: a leader may renew, more than it does, until valid_until.
 *   - A create under terms/ that lands after its process stopped waiting for it. It could only refuse a term to others.
 *   - A LIST of terms/ and the GET of the record as two requests: the LIST has to come first.
 *
 * How things are represented:
 *   - Time. One tick of true time moves each process's clock by 1 (as slow as allowed) or by 2 (as fast), chosen anew
 *     for every process at every tick: drift is 1/3, and a lease of 1.5 k units lasts `k` units for its leader (x (1 -
 *     drift)) and `2 k` for those who watch it (x (1 + drift)). The margin of E-2 is 0, so that every bound is tight.
 *     Timers are relative: what is left of a validity, how long something was watched; they stop where a further tick
 *     changes nothing.
 *   - Ids. A version or a write id is only ever compared with that of the record, so each copy of one that a process
 *     or a request holds is two bits: does it name the record as it is (`cur`), or as it is in the backup from which
 *     it may be put back (`bak`)? One that names neither can never match again, and is forgotten.
 *   - Answers. A write is FLYING until it lands, at any time or never, and its condition is judged when it lands. Once
 *     it has LANDED its process may learn of it, at any time or never: by the answer or, if that was lost, by reading
 *     back. Until then the outcome is `Unknown`, and the process goes on with what it knows. A write that is rejected
 *     changes nothing, and is not kept: its process finds out by reading.
 *   - Reading. A GET takes no time. A watch that starts when the response was made, and not later when it came, is the
 *     longest that "clock after the response" allows; who acts late on what it read is a process that pauses.
 *
 * Bounds: N processes, epochs up to EPOCHS, leases of SHORT or LONG (equal: one length), LOSSES, ROLLBACKS, WRITES of
 * one process that are in flight or not settled. Within them the search is complete. tools/model.py has the
 * configurations and runs the broken variants, each one name of these, for which the search has to find a violation:
 *
 *   NO_DRIFT_MARGIN             leader and follower both count the bare lease
 *   LEASE_FROM_ANSWER           the leader counts from the answer, not from before the sending
 *   VALID_UNTIL_BY_MAX          valid_until is not lowered by sending, and is raised by max on confirmation
 *   FLAG_NOT_DEADLINE           leadership is a flag that its process clears, not a comparison with the clock
 *   FOLLOWER_CLOCK_BEFORE_READ  the follower counts from before its GET
 *   WALL_CLOCK_EXPIRY           the follower compares the leader's expiry stamp with its own wall clock, a tick ahead
 *   UNKNOWN_IS_APPLIED          a write without an answer is taken to have happened
 *   UNKNOWN_IS_REJECTED         a write without an answer is taken not to have happened: what it lowered is restored
 *                               (if it lowered nothing, no more is lost than a term that could have gone on)
 *   BLIND_RELEASE               the release has no condition
 *   EPOCH_RESET_ON_RELEASE      the release starts the epochs again
 *   REBUILD_AT_ONCE             a damaged record is rebuilt without being watched first
 *   GRANT_WITHOUT_TERM_RECORD   a won compare-and-swap is leadership
 *   TERM_BY_NAME                a term record counts as ours if it has our name, although it is for another grant
 *   BACKFILL_AFTER_LEADING      the term before is filled in after the leadership has begun, not before the CAS
 *   STAND_WHILE_VALID           a new grant is asked for between renew_deadline and valid_until of the last one
 *   STAND_AFTER_REJECTED_TERM   who is refused the term record treats the record that it wrote as its own
 *   DAMAGE_KEEPS_WATCH          the time counts for which the record was watched before it was seen to be damaged
 *   DAMAGE_BY_VERSION_ALONE     a damaged record counts as the same although terms/ has a newer term than when first
 *                               seen
 */

#ifndef N
#define N         2     /* 2 or 3 */
#endif
#ifndef EPOCHS
#define EPOCHS    3
#endif
#ifndef LONG
#define LONG      2     /* k of the longest lease: what its leader counts, in units */
#endif
#ifndef SHORT
#define SHORT     LONG
#endif
#ifndef WRITES
#define WRITES    2     /* 1 or 2 */
#endif
#ifndef LOSSES
#define LOSSES    0
#endif
#ifndef ROLLBACKS
#define ROLLBACKS 0
#endif

/* With -DREACH=n the search has to get to landmark n: a model in which nothing can happen has no violations either. */
#ifndef REACH
#define REACH     0
#endif
#define LANDMARK(n)  assert(REACH != n)

#define min(a, b)   ((a) < (b) -> (a) : (b))
#define max(a, b)   ((a) > (b) -> (a) : (b))
#define less(a, b)  ((a) > (b) -> (a) - (b) : 0)

#ifdef NO_DRIFT_MARGIN
#define LEADER(k)   ((k) * 3 / 2)   /* the lease itself, for both */
#define FOLLOWER(k) ((k) * 3 / 2)
#else
#define LEADER(k)   (k)             /* lease x (1 - drift) */
#define FOLLOWER(k) ((k) * 2)       /* lease x (1 + drift), and no margin */
#endif

/* ---- the store ----------------------------------------------------------------------------------------------- */

#define NOBODY  0                   /* leaderId: null */
#define MISSING 9                   /* there is no state.json */

byte r_holder = MISSING;            /* NOBODY, or 1 + the process */
byte r_epoch, r_lease;              /* while it is missing: the epoch that it had, for Damage alone */
bit  r_bak;                         /* the record is the one in the backup */

bit  b_taken;                       /* a backup exists, which no process reads */
byte b_holder, b_epoch, b_lease;
byte losses = LOSSES, rollbacks = ROLLBACKS; /* still to come */

#define UNCONFIRMED 8               /* nobody can lead under it: filled in, or of a grant that was given up */
byte terms[EPOCHS + 1];             /* terms/{epoch}.json: 0 absent, 1 + the process, or UNCONFIRMED */

/* ---- what a process knows ------------------------------------------------------------------------------------ */

mtype = { UNREAD, NEW, LOST, VACANT, OWN, OTHERS, DAMAGED };
/* UNREAD: nothing that could still be true. NEW: no record, no terms. LOST: no record, and terms. OWN: ours, under the
   last term that we confirmed. OTHERS: of somebody else, or of ours under any other epoch. */

mtype sight[N] = UNREAD;
byte  epoch[N];                     /* of the record; LOST, DAMAGED: the newest term, listed before the GET */
byte  lease[N];                     /* OTHERS */
byte  watched[N];                   /* OTHERS, LOST, DAMAGED: units since it was first seen so */
bit   k_cur[N], k_bak[N];           /* of the version */
byte  term[N];                      /* the last epoch whose term record we know to be ours */
byte  valid[N];                     /* Holding.remaining: units until valid_until */

/* ---- the writes of a process: p, and N + p ------------------------------------------------------------------- */

mtype = { FREE, FLYING, LANDED, WON };
/* LANDED: applied, and its process has not learned of it. WON: a grant of which it has; the term record comes next. */
mtype = { NONE, RENEW, GRANT, RELEASE, REBUILD };

#define ALL_WRITES  (WRITES * N)
mtype w_state[ALL_WRITES] = FREE, w_kind[ALL_WRITES] = NONE;
byte  w_epoch[ALL_WRITES], w_lease[ALL_WRITES];
byte  w_left[ALL_WRITES];           /* units of validity that its confirmation gives, counted from before its sending */
bit   w_create[ALL_WRITES];         /* its condition is that there is no record */
bit   w_cur[ALL_WRITES], w_bak[ALL_WRITES]; /* FLYING: of the version that it expects; later: of the one that it made */

#if WRITES > 1
#define ANY_WRITE(p, test)  (test(p) || test(N + (p)))
#define FREE_WRITE(p)       (w_state[p] == FREE -> (p) : N + (p))
#else
#define ANY_WRITE(p, test)  (test(p))
#define FREE_WRITE(p)       (p)
#endif
#define IS_FREE(s)          (w_state[s] == FREE)
#define IS_WON(s)           (w_state[s] == WON)
#define IS_READ_BACK(s)     (w_state[s] == LANDED && w_cur[s])
#define MAY_SEND(p)         (ANY_WRITE(p, IS_FREE) && !ANY_WRITE(p, IS_WON))

/* ---- for the checks, and for broken variants ----------------------------------------------------------------- */

byte top;                           /* the highest epoch that was led */
byte numbered;                      /* how many processes have landed a write */

#ifdef FLAG_NOT_DEADLINE
bit  flag[N];
#define LEASE_VALID(p)  (flag[p])
#else
#define LEASE_VALID(p)  (valid[p] > 0)
#endif
#ifdef FOLLOWER_CLOCK_BEFORE_READ
byte asked[N];                      /* 0: no GET under way; else 1 + units since it was sent */
#define MAY_READ(p)     (asked[p])
#else
#define MAY_READ(p)     true
#endif
#ifdef WALL_CLOCK_EXPIRY
byte stamp;                         /* true ticks until leaseExpiresAt */
#endif
#ifdef UNKNOWN_IS_REJECTED
byte before[N];                     /* what `valid` would be, had the last write not been sent */
#endif
#ifdef BACKFILL_AFTER_LEADING
bit  owes[N];                       /* leads, and has not filled in the term before */
#endif

#ifndef SCRATCH
#define SCRATCH hidden              /* no part of the state: set and used within one step */
#endif
SCRATCH byte i, newest, units, to;

inline list_terms() {
    newest = 0;
    for (i : 1 .. EPOCHS) { if :: terms[i] -> newest = i :: else fi }
}

inline unread(p) { sight[p] = UNREAD; epoch[p] = 0; lease[p] = 0; watched[p] = 0; k_cur[p] = 0; k_bak[p] = 0 }

inline clear(s) {
    w_state[s] = FREE; w_kind[s] = NONE; w_epoch[s] = 0; w_lease[s] = 0; w_left[s] = 0;
    w_create[s] = 0; w_cur[s] = 0; w_bak[s] = 0
}

/* One state for all that behave alike, at the end of every step: forgets what can make no difference any more. To act
   on an id that cannot match is to be refused and to learn that by reading, which is the same as not to act. */
inline tidy() {
    for (i : 0 .. N - 1) {
        if
        :: k_cur[i] || k_bak[i] || sight[i] == UNREAD
        :: else ->
            if
            :: (sight[i] == NEW || sight[i] == LOST) && (r_holder == MISSING || losses)
            :: else -> unread(i)
            fi
        fi
    }
    for (i : 0 .. ALL_WRITES - 1) {
        if
        :: w_state[i] == FLYING && w_create[i] && r_holder != MISSING && !losses -> clear(i)
#ifndef BLIND_RELEASE
        :: w_state[i] == FLYING && !w_create[i] && !w_cur[i] && !w_bak[i] -> clear(i)
#endif
        :: w_state[i] == FLYING && w_kind[i] == RENEW && !LEASE_VALID(i % N) -> w_left[i] = 0
        :: w_state[i] == LANDED && w_kind[i] == RENEW && !LEASE_VALID(i % N) -> clear(i) /* it will be read as OWN */
        :: w_state[i] == LANDED && w_kind[i] == GRANT && w_epoch[i] <= term[i % N] -> clear(i) /* too late to stand */
        :: else
        fi
    }
#if WRITES > 1
    for (i : N .. ALL_WRITES - 1) {
        to = i - N;
        if
        :: w_state[to] == FREE && w_state[i] != FREE ->
            w_state[to] = w_state[i]; w_kind[to] = w_kind[i]; w_epoch[to] = w_epoch[i]; w_lease[to] = w_lease[i];
            w_left[to] = w_left[i]; w_create[to] = w_create[i]; w_cur[to] = w_cur[i]; w_bak[to] = w_bak[i];
            clear(i)
        :: else
        fi
    }
#endif
    i = 0; to = 0 /* a d_step may not end in a loop */
}

/* ---- E-1, E-4: election/holding.py --------------------------------------------------------------------------- */

/* Holding.sending, before any write to the lease: k is 0 for one that leaves nobody the leader. */
inline sending(p, k) {
#ifdef UNKNOWN_IS_REJECTED
    before[p] = valid[p];
#endif
#ifdef VALID_UNTIL_BY_MAX
    if :: (k) == 0 -> valid[p] = 0 :: else fi;
#else
    valid[p] = min(valid[p], LEADER(k));
#endif
#ifdef FLAG_NOT_DEADLINE
    if :: (k) == 0 -> flag[p] = 0 :: else fi;
#endif
}

/* Holding.confirmed: assigns, from the write's own send time. */
inline confirmed(p, s) {
#if defined(LEASE_FROM_ANSWER)
    valid[p] = LEADER(w_lease[s]);
#elif defined(VALID_UNTIL_BY_MAX)
    valid[p] = max(valid[p], w_left[s]);
#else
    valid[p] = w_left[s];
#endif
#ifdef UNKNOWN_IS_REJECTED
    before[p] = 0;
#endif
#ifdef FLAG_NOT_DEADLINE
    flag[p] = (w_left[s] > 0);
#endif
}

/* The version that write s made is what we know, unless we have read another since. */
inline know_own(p, s) {
    if
    :: w_cur[s] || (w_bak[s] && !k_cur[p]) ->
        unread(p);
        sight[p] = OWN; epoch[p] = w_epoch[s]; k_cur[p] = w_cur[s]; k_bak[p] = w_bak[s]
    :: else
    fi
}

/* A grant becomes a leadership; with nothing left of its lease, a term that is over. */
inline lead(p, s) {
    assert(w_kind[s] == GRANT && w_state[s] != FLYING);                /* I-3 */
    if
    :: w_left[s] > 0 ->
        assert(w_epoch[s] > top);                                      /* I-2 */
        top = w_epoch[s];
        if :: top == EPOCHS -> LANDMARK(1) :: else fi
    :: else -> LANDMARK(2)
    fi;
    term[p] = w_epoch[s];
    confirmed(p, s);
#ifdef BACKFILL_AFTER_LEADING
    owes[p] = 1;
#endif
    printf("%d leads under epoch %d, for %d\n", p, term[p], valid[p]);
    know_own(p, s);
    clear(s)
}

/* ---- E-2, E-5, E-9: election/decide.py decide ---------------------------------------------------------------- */

#ifdef WALL_CLOCK_EXPIRY
#define LAPSED(p)          (stamp <= 1)
#else
#define LAPSED(p)          (watched[p] >= FOLLOWER(lease[p]))
#endif
#ifdef STAND_WHILE_VALID
#define TERM_IS_OVER(p)    true
#else
#define TERM_IS_OVER(p)    (!LEASE_VALID(p))
#endif
#ifdef REBUILD_AT_ONCE
#define DAMAGE_WATCHED(p)  true
#else
#define DAMAGE_WATCHED(p)  (watched[p] >= FOLLOWER(LONG))
#endif

/* Over our own record at once (E-4), but not before valid_until: hooks of the last term may still run. */
#define STANDS(p) \
    (MAY_SEND(p) && TERM_IS_OVER(p) && epoch[p] < EPOCHS && \
     (sight[p] == NEW || sight[p] == VACANT || sight[p] == OWN || (sight[p] == OTHERS && LAPSED(p))))

/* E-3: before the CAS. So every epoch below that of the record has its term, and whoever stands on a record that was
   put back, under any of these epochs, is refused it. */
#if defined(GRANT_WITHOUT_TERM_RECORD) || defined(BACKFILL_AFTER_LEADING)
#define TERM_BEFORE_IS_THERE(p)  true
#else
#define TERM_BEFORE_IS_THERE(p)  (epoch[p] == 0 || terms[epoch[p]])
#endif

/* A LOST or DAMAGED record is the same as before if no term has come since: otherwise somebody led in between. */
inline see_damage(p, what) {
    list_terms();
    if
#ifdef DAMAGE_BY_VERSION_ALONE
    :: sight[p] == what -> epoch[p] = newest
#else
    :: sight[p] == what && epoch[p] == newest
#endif
    :: else ->
#ifdef DAMAGE_KEEPS_WATCH
        if :: what == LOST || sight[p] != OTHERS -> watched[p] = 0 :: else fi;
#else
        watched[p] = 0;
#endif
        sight[p] = what; epoch[p] = newest; lease[p] = 0
    fi
}

/* ---- what a process does ------------------------------------------------------------------------------------- */

inline send(p, kind_, epoch_, k) {
    to = FREE_WRITE(p);
    w_state[to] = FLYING; w_kind[to] = kind_; w_epoch[to] = epoch_; w_lease[to] = k; w_left[to] = LEADER(k);
    w_create[to] = (sight[p] == NEW || sight[p] == LOST);
    w_cur[to] = k_cur[p]; w_bak[to] = k_bak[p];
    sending(p, k);
    printf("%d sends %e, epoch %d, lease %d\n", p, kind_, epoch_, k);
    tidy()
}

inline read(p) {
    if
    :: r_holder == MISSING ->
        list_terms();
        k_cur[p] = 0; k_bak[p] = 0;
        if
        :: newest == 0 -> unread(p); sight[p] = NEW
        :: else -> see_damage(p, LOST)
        fi
    :: r_holder != MISSING && k_cur[p] /* the version that we know */
    :: else ->
        unread(p);
        k_cur[p] = 1; k_bak[p] = r_bak; epoch[p] = r_epoch;
        if
        :: r_holder == NOBODY -> sight[p] = VACANT
        :: r_holder == p + 1 && r_epoch == term[p] -> sight[p] = OWN
        :: else ->
            sight[p] = OTHERS; lease[p] = r_lease;
#ifdef FOLLOWER_CLOCK_BEFORE_READ
            watched[p] = min(asked[p] - 1, FOLLOWER(r_lease))
#endif
        fi
    fi;
#ifdef FOLLOWER_CLOCK_BEFORE_READ
    asked[p] = 0;
#endif
    printf("%d reads %e, epoch %d\n", p, sight[p], epoch[p])
}

proctype Process(byte p) {
    do
    /* LeaseDesk.read, then election/sight.py observe with the clock read after the response. */
    :: d_step { MAY_READ(p) && !ANY_WRITE(p, IS_WON) && !ANY_WRITE(p, IS_READ_BACK) -> read(p) }
#ifdef FOLLOWER_CLOCK_BEFORE_READ
    :: d_step { asked[p] == 0 -> asked[p] = 1; printf("%d sends a GET\n", p) }
#endif

    /* observe: a look at terms/, at any time, shows a record that was put back. */
    :: d_step { k_cur[p] && !ANY_WRITE(p, IS_WON) ->
        list_terms();
        if
        :: r_epoch < newest || sight[p] == DAMAGED ->
            see_damage(p, DAMAGED);
            printf("%d sees damage, newest term %d\n", p, newest)
        :: else
        fi }

    /* LeaseDesk.renew. */
    :: d_step { MAY_SEND(p) && sight[p] == OWN && LEASE_VALID(p) -> send(p, RENEW, epoch[p], LONG) }
#if SHORT < LONG
    :: d_step { MAY_SEND(p) && sight[p] == OWN && LEASE_VALID(p) -> send(p, RENEW, epoch[p], SHORT) }
#endif

    /* LeaseDesk.stand: fills in the term before, then the CAS. */
    :: d_step { STANDS(p) && !TERM_BEFORE_IS_THERE(p) ->
        terms[epoch[p]] = UNCONFIRMED;
        LANDMARK(4);
        printf("%d fills in term %d\n", p, epoch[p]) }
    :: d_step { STANDS(p) && TERM_BEFORE_IS_THERE(p) -> send(p, GRANT, epoch[p] + 1, LONG) }
#if SHORT < LONG
    :: d_step { STANDS(p) && TERM_BEFORE_IS_THERE(p) -> send(p, GRANT, epoch[p] + 1, SHORT) }
#endif

    /* LeaseDesk.release; also once more, when the record was read back and is still ours. */
#ifdef EPOCH_RESET_ON_RELEASE
    :: d_step { MAY_SEND(p) && sight[p] == OWN -> send(p, RELEASE, 0, 0) }
#else
    :: d_step { MAY_SEND(p) && sight[p] == OWN -> send(p, RELEASE, epoch[p], 0) }
#endif

    /* LeaseDesk.rebuild: vacant, under the newest term that was seen, so that the next grant is above it. */
    :: d_step { MAY_SEND(p) && (sight[p] == LOST || sight[p] == DAMAGED) && DAMAGE_WATCHED(p) ->
        send(p, REBUILD, epoch[p], 0) }

#ifdef BACKFILL_AFTER_LEADING
    :: d_step { owes[p] ->
        owes[p] = 0;
        if :: term[p] > 1 && !terms[term[p] - 1] -> terms[term[p] - 1] = UNCONFIRMED :: else fi }
#endif
#ifdef FLAG_NOT_DEADLINE
    :: d_step { flag[p] && valid[p] == 0 -> flag[p] = 0; tidy() }
#endif
#ifdef UNKNOWN_IS_REJECTED
    :: d_step { before[p] > valid[p] ->
        valid[p] = before[p]; before[p] = 0;
        printf("%d restores %d\n", p, valid[p]) }
#endif
    od
}

/* ---- what becomes of a write: the network, the store, and its process's part --------------------------------- */

#ifdef BLIND_RELEASE
#define CONDITION_HOLDS(s)  (w_kind[s] == RELEASE || (w_create[s] -> r_holder == MISSING : w_cur[s]))
#else
#define CONDITION_HOLDS(s)  (w_create[s] -> r_holder == MISSING : w_cur[s])
#endif
/* Processes are alike: they are numbered in the order in which a write of theirs first lands. */
#define LANDS(p, s)  (w_state[s] == FLYING && CONDITION_HOLDS(s) && p <= numbered)

inline no_copy_is_current() {
    r_bak = 0;
    for (i : 0 .. N - 1) { k_cur[i] = 0 }
    for (i : 0 .. ALL_WRITES - 1) { w_cur[i] = 0 }
}

inline land(p, s) {
    printf("  %e of %d lands, epoch %d\n", w_kind[s], p, w_epoch[s]);
    if :: !w_create[s] -> assert(w_epoch[s] >= r_epoch) /* I-2 */ :: else fi;
    numbered = max(numbered, p + 1);
    no_copy_is_current();
    r_epoch = w_epoch[s]; r_lease = w_lease[s];
#ifdef WALL_CLOCK_EXPIRY
    stamp = w_lease[s];
#endif
    if
    :: w_kind[s] == RENEW || w_kind[s] == GRANT ->
        r_holder = p + 1;
        w_state[s] = LANDED; w_create[s] = 0; w_cur[s] = 1; w_bak[s] = 0
    :: else ->
        if :: w_kind[s] == REBUILD && w_create[s] -> LANDMARK(6) :: else fi;
        if :: w_kind[s] == REBUILD && !w_create[s] -> LANDMARK(7) :: else fi;
        r_holder = NOBODY;
        clear(s) /* what its process could learn, it learns by reading */
    fi;
    tidy()
}

/* The record, just before something else takes its place: a backup taken earlier would be the same. */
#define MAY_BACK_UP  (rollbacks && !b_taken && r_holder != MISSING)
inline back_up() {
    printf("  backup: holder %d, epoch %d\n", r_holder, r_epoch);
    b_taken = 1; b_holder = r_holder; b_epoch = r_epoch; b_lease = r_lease;
    for (i : 0 .. N - 1) { k_bak[i] = k_cur[i] }
    for (i : 0 .. ALL_WRITES - 1) { w_bak[i] = w_cur[i] }
}

inline learn(p, s) {
    printf("%d learns that %e, epoch %d, was applied\n", p, w_kind[s], w_epoch[s]);
    if
    :: w_kind[s] == RENEW ->
        /* E-4: a term that is over, by time or because a release was sent, is not revived. */
        if
        :: LEASE_VALID(p) ->
            if :: w_left[s] < LEADER(w_lease[s]) -> LANDMARK(3) :: else fi;
            confirmed(p, s)
        :: else
        fi;
        know_own(p, s);
        clear(s)
    :: else ->
#ifdef GRANT_WITHOUT_TERM_RECORD
        lead(p, s)
#else
        w_state[s] = WON
#endif
    fi;
    tidy()
}

inline confirm(p, s) {
    if
    :: terms[w_epoch[s]] == p + 1 -> lead(p, s)
    :: else ->
        /* E-3: somebody else's, who may lead. So the record is damaged, although we wrote it. */
        printf("%d is refused term %d\n", p, w_epoch[s]);
        LANDMARK(5);
        if
#ifdef STAND_AFTER_REJECTED_TERM
        :: w_cur[s] -> know_own(p, s)
#else
        :: w_cur[s] -> unread(p); k_cur[p] = 1; k_bak[p] = w_bak[s]; see_damage(p, DAMAGED)
#endif
        :: else
        fi;
        clear(s)
    fi;
    tidy()
}

inline give_up(p, s) {
    printf("%d gives up, term %d\n", p, w_epoch[s]);
#ifndef TERM_BY_NAME
    if :: terms[w_epoch[s]] == p + 1 -> terms[w_epoch[s]] = UNCONFIRMED; LANDMARK(8) :: else fi;
#endif
    clear(s);
    tidy()
}

proctype Write(byte p; byte s) {
    do
    /* It lands, soon or late. */
    :: d_step { LANDS(p, s) -> land(p, s) }
#if ROLLBACKS > 0
    :: d_step { LANDS(p, s) && MAY_BACK_UP -> back_up(); land(p, s) }
#endif

    /* The request is lost. */
    :: d_step { w_state[s] == FLYING -> printf("  %e of %d is lost\n", w_kind[s], p); clear(s); tidy() }

    /* The answer of LeaseDesk.renew or LeaseDesk.stand; or LeaseDesk.settle, if that was lost. */
    :: d_step { w_state[s] == LANDED && !ANY_WRITE(p, IS_WON) -> learn(p, s) }

    /* The answer is lost, and reading back can no longer tell. */
    :: d_step { w_state[s] == LANDED && !w_cur[s] && !w_bak[s] -> clear(s); tidy() }

    /* LeaseDesk.confirm: terms/{epoch} is created; the answer, or reading it back, says whose it is. */
    :: d_step { w_state[s] == WON && !terms[w_epoch[s]] ->
        terms[w_epoch[s]] = p + 1;
        printf("  term %d of %d lands\n", w_epoch[s], p) }
    :: d_step { w_state[s] == WON && terms[w_epoch[s]] -> confirm(p, s) }
    /* Or it gives up, not knowing whether the term record is there. It will not be ours: it names this grant. */
    :: d_step { w_state[s] == WON -> give_up(p, s) }

#ifdef UNKNOWN_IS_APPLIED
    :: d_step { w_state[s] == FLYING && w_kind[s] == RENEW && LEASE_VALID(p) ->
        confirmed(p, s);
        printf("%d takes its %e for applied\n", p, w_kind[s]) }
#endif
    od
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

inline tick(fast) {                 /* bit p of `fast`: how the clock of p runs during this tick */
    printf("    tick %d\n", fast);
    for (i : 0 .. N - 1) {
        units = 1 + ((fast >> i) & 1);
        valid[i] = less(valid[i], units);
        w_left[i] = less(w_left[i], units);
#if WRITES > 1
        w_left[N + i] = less(w_left[N + i], units);
#endif
        if
        :: sight[i] == OTHERS -> watched[i] = min(watched[i] + units, FOLLOWER(lease[i]))
        :: sight[i] == LOST || sight[i] == DAMAGED -> watched[i] = min(watched[i] + units, FOLLOWER(LONG))
        :: else
        fi;
#ifdef FOLLOWER_CLOCK_BEFORE_READ
        if :: asked[i] -> asked[i] = min(asked[i] + units, 1 + FOLLOWER(LONG)) :: else fi;
#endif
#ifdef UNKNOWN_IS_REJECTED
        before[i] = less(before[i], units);
#endif
    }
#ifdef WALL_CLOCK_EXPIRY
    stamp = less(stamp, 1);
#endif
    tidy()
}

proctype Time() {
    do
    :: d_step { true -> tick(0) }
    :: d_step { true -> tick(1) }
    :: d_step { true -> tick(2) }
    :: d_step { true -> tick(3) }
#if N > 2
    :: d_step { true -> tick(4) }
    :: d_step { true -> tick(5) }
    :: d_step { true -> tick(6) }
    :: d_step { true -> tick(7) }
#endif
    od
}

/* ---- damage, E-9 --------------------------------------------------------------------------------------------- */

#if LOSSES + ROLLBACKS > 0
#ifdef ROLLBACK_WITHIN_TERM
#define IS_EARLIER  (b_epoch <= r_epoch)
#else
#define IS_EARLIER  (b_epoch < r_epoch)
#endif

inline lose() {
    losses--;
    no_copy_is_current();
    r_holder = MISSING; r_lease = 0;
    printf("  the record is lost\n");
    tidy()
}

inline put_back() {
    rollbacks--;
    r_holder = b_holder; r_epoch = b_epoch; r_lease = b_lease; r_bak = 1;
    for (i : 0 .. N - 1) { k_cur[i] = k_bak[i] }
    for (i : 0 .. ALL_WRITES - 1) { w_cur[i] = w_bak[i] }
    printf("  put back: holder %d, epoch %d\n", r_holder, r_epoch);
    if
    :: rollbacks
    :: else -> /* the backup has served */
        b_taken = 0; b_holder = 0; b_epoch = 0; b_lease = 0; r_bak = 0;
        for (i : 0 .. N - 1) { k_bak[i] = 0 }
        for (i : 0 .. ALL_WRITES - 1) { w_bak[i] = 0 }
    fi;
    tidy()
}

proctype Damage() {
    do
    :: d_step { losses && r_holder != MISSING -> lose() }
#if ROLLBACKS > 0
    :: d_step { losses && r_holder != MISSING && MAY_BACK_UP -> back_up(); lose() }
    :: d_step { rollbacks && b_taken && IS_EARLIER -> put_back() }
#endif
    od
}
#endif

/* ---- I-1, at every instant ----------------------------------------------------------------------------------- */

#if N > 2
#define TWO_VALID  (LEASE_VALID(0) + LEASE_VALID(1) + LEASE_VALID(2) > 1)
#else
#define TWO_VALID  (LEASE_VALID(0) + LEASE_VALID(1) > 1)
#endif

proctype Instant() {
    do
    :: d_step { TWO_VALID -> assert(!TWO_VALID) /* I-1 */ }
    od
}

init {
    atomic {
        for (units : 0 .. N - 1) { run Process(units) }
        for (units : 0 .. ALL_WRITES - 1) { run Write(units % N, units) }
        units = 0;
#if LOSSES + ROLLBACKS > 0
        run Damage();
#endif
        run Time();
        run Instant()
    }
}

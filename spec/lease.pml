/*
 * The lease of one namespace: who leads, when the store loses answers, clocks drift and processes are paused.
 *
 * Guarantee, checked in every reachable state:
 *   I-1  At no instant is the lease valid for two processes. "Valid" is "before valid_until", which includes the time
 *        after renew_deadline in which hooks finish; is_leader() is true for a part of it.
 *   I-2  Leaderships begin in the order of their epochs, each epoch is led by at most one process, and no write of a
 *        process puts a lower epoch into the record.
 *   I-3  A process leads only under a grant that it issued itself and that was applied.
 *
 * Assumption: each clock runs, at every moment, within `drift` of true time; the store's compare-and-swap is atomic;
 * objects under terms/ are never changed or removed. Damage to the record is of two kinds, DAMAGES times in a run: it is
 * lost, or it is put back to what it was under an earlier epoch.
 *
 * Not guaranteed, and not modelled:
 *   - A record put back to an earlier write of the *same* epoch. A follower that watched that write since it was new
 *     cannot tell that there were others: with -DROLLBACK_WITHIN_TERM the search finds two leaders.
 *   - Progress: every step may be put off for ever. A crash is a process that takes no further step, and one that starts
 *     again has a new uid and is another process.
 *   - E-6..E-8, E-10..E-12: requests by outsiders, rank, worker records, breaker, mandates, fork. Anybody may stand as
 *     soon as the lease allows it, so an order among candidates only removes behaviour. Without outsiders every write is
 *     by a leader or by one who stands, and the version of the record stands for `leaderWriteId` too.
 *
 * How things are represented:
 *   - Time. One tick of true time moves each process's clock by 1 (as slow as allowed) or by 2 (as fast), chosen anew
 *     for every process at every tick: drift is 1/3, and a lease of 1.5 k units lasts `k` units for its leader
 *     (x (1 - drift)) and `2 k` for those who watch it (x (1 + drift)). The margin of E-2 is 0, so that every bound is
 *     tight. Timers are relative: what remains of a validity, how long something was watched, both capped where a larger
 *     value changes nothing.
 *   - Ids. A version or write id is only ever compared with that of the record, so each copy of one that a process or a
 *     request holds is two bits: does it name the record as it is now (`cur`), or the record as it is in the backup from
 *     which damage restores (`bak`). An id that names neither is forgotten: it can never match again.
 *   - Answers. A write stays IN FLIGHT until it lands, at any time or never, and its condition is judged when it lands.
 *     Once it is LANDED its process may learn of it, at any time or never: from the answer, or, if that was lost, by
 *     reading back (settle). In between the outcome is `Unknown`, and the process goes on with what it knows. A rejected
 *     write changes nothing, and is not kept.
 *   - Reading. A GET takes no time: a watch that starts when the response was made, and not later, when it came, is the
 *     longest that "clock after the response" allows. Whoever acts late on what it read is a process that pauses.
 *
 * Bounds: N processes, epochs up to EPOCHS, leases of `SHORT` or `LONG` (equal: one length only), DAMAGES, two writes of a
 * process in flight or unsettled at once. Within these the search is complete. tools/model.py has the configurations, and
 * the broken variants: each is one -D name below, and for each the search must find a violation.
 *
 *   NO_DRIFT_MARGIN               leader and follower both count the bare lease
 *   LEASE_FROM_ANSWER             the leader counts from the answer, not from before the sending
 *   VALID_UNTIL_BY_MAX            valid_until is not lowered by sending, and raised by max on confirmation
 *   FLAG_NOT_DEADLINE             leadership is a flag that its process clears, not a comparison with the clock
 *   FOLLOWER_CLOCK_BEFORE_READ    the follower counts from before its GET
 *   WALL_CLOCK_EXPIRY             the follower compares the leader's expiry stamp with its own wall clock, one tick ahead
 *   UNKNOWN_IS_APPLIED            a write without an answer is taken to have happened
 *   UNKNOWN_IS_REJECTED           a write without an answer is taken not to have happened, and what it lowered is restored
 *   BLIND_RELEASE                 release without a condition
 *   EPOCH_RESET_ON_RELEASE        release starts the epochs again
 *   REBUILD_AT_ONCE               a damaged record is rebuilt without watching it first
 *   GRANT_WITHOUT_TERM_RECORD     a won compare-and-swap is leadership
 *   BACKFILL_AFTER_LEADING        terms/{epoch-1} is filled in after the leadership has begun, not before the CAS
 *   STAND_WHILE_VALID             a term that ended at renew_deadline is followed by a new grant before its valid_until
 *   STAND_AFTER_REJECTED_TERM     whose term record was rejected treats the record that it wrote as its own, at once
 *   DAMAGE_KEEPS_WATCH            the time for which the record was watched before it was known as damaged counts
 *   DAMAGE_BY_VERSION_ALONE       a damaged record is known again by its version, whatever terms/ has got since
 */

#ifndef N
#define N       2       /* processes: 2 or 3 */
#endif
#ifndef EPOCHS
#define EPOCHS  3       /* grants above it are not made */
#endif
#ifndef LONG
#define LONG    2       /* k of the longest lease: what its leader counts, in units */
#endif
#ifndef SHORT
#define SHORT   LONG
#endif
#ifndef DAMAGES
#define DAMAGES 0
#endif

#define SLOTS   (2 * N)
#define min(a, b)    ((a) < (b) -> (a) : (b))
#define max(a, b)    ((a) > (b) -> (a) : (b))
#define less(a, b)   ((a) > (b) -> (a) - (b) : 0)

#ifdef NO_DRIFT_MARGIN
#define LEADER(k)    ((k) * 3 / 2)      /* the lease itself, for both */
#define FOLLOWER(k)  ((k) * 3 / 2)
#else
#define LEADER(k)    (k)                /* lease x (1 - drift) */
#define FOLLOWER(k)  ((k) * 2)          /* lease x (1 + drift), no margin */
#endif

/* ---- the store ---------------------------------------------------------------------------------------------------- */

#define NOBODY  0       /* leaderId: null */
#define MISSING 9       /* there is no state.json */

byte r_holder = MISSING; /* NOBODY, or 1 + the process */
byte r_epoch;            /* of a record that is missing: what it was, for `damage` alone */
byte r_lease;
bit  r_bak;              /* the record is the one in the backup */

bit  b_taken;            /* a backup exists; no process reads it */
byte b_holder, b_epoch, b_lease;
byte damages = DAMAGES;  /* still to come */

#define UNCONFIRMED 8    /* back-filled: granted, and nobody led under it */
byte terms[EPOCHS + 1];  /* terms/{epoch}.json: 0 absent, 1 + the process, or UNCONFIRMED */

/* ---- a process ---------------------------------------------------------------------------------------------------- */

mtype = { UNREAD, NEW, LOST, VACANT, OWN, OTHERS, DAMAGED };
/* NEW: missing, terms/ empty. LOST: missing, with history. OWN: our grant, under the last term that we confirmed.
   OTHERS includes a record under our own name and another term. UNREAD: nothing known that could still be the record. */

mtype sight[N] = UNREAD;
byte  epoch[N];          /* the epoch in it; LOST, DAMAGED: the newest under terms/ (listed before the GET) */
byte  lease[N];          /* of OTHERS */
byte  watched[N];        /* OTHERS, LOST, DAMAGED: units since first seen so */
bit   k_cur[N], k_bak[N];

byte  term[N];           /* the last epoch whose term record is ours */
byte  valid[N];          /* units until valid_until: Holding.remaining */

/* ---- the writes of a process: slots 2p and 2p + 1 ----------------------------------------------------------------- */

mtype = { FREE, FLYING, LANDED, WON };
/* LANDED: applied, its process has not learned of it. WON: a grant, learned; its term record is not yet confirmed. */
mtype = { NONE, RENEW, GRANT, RELEASE, REBUILD };

mtype w_state[SLOTS] = FREE;
mtype w_kind[SLOTS] = NONE;
byte  w_epoch[SLOTS], w_lease[SLOTS];
byte  w_left[SLOTS];     /* units of validity that it gives if it is confirmed: counted from before it was sent */
bit   w_cur[SLOTS], w_bak[SLOTS]; /* FLYING: of the version that it expects; else: of the version that it made */
bit   w_create[SLOTS];   /* expects that there is no record */

/* ---- for the checks, and for the broken variants ------------------------------------------------------------------ */

byte top;                /* the highest epoch that was led */

#ifdef FLAG_NOT_DEADLINE
bit  flag[N];
#define LEASE_VALID(p)  (flag[p])
#else
#define LEASE_VALID(p)  (valid[p] > 0)
#endif
#ifdef FOLLOWER_CLOCK_BEFORE_READ
byte asked[N];           /* 0: no GET under way; else 1 + units since it was sent */
#endif
#ifdef WALL_CLOCK_EXPIRY
byte stamp;              /* true ticks until leaseExpiresAt */
#endif
#ifdef UNKNOWN_IS_REJECTED
byte before[N];          /* what `valid` would be without the last write sent */
#endif
#ifdef BACKFILL_AFTER_LEADING
bit  owes[N];            /* leads, and has not filled in the term before */
#endif

#ifndef SCRATCH
#define SCRATCH hidden   /* no part of the state: set and used within one step */
#endif
SCRATCH byte i, newest, units;

inline list_terms() {   /* newest = the highest epoch under terms/ */
    newest = 0;
    for (i : 1 .. EPOCHS) { if :: terms[i] -> newest = i :: else fi }
}

inline clear(s) {
    w_state[s] = FREE; w_kind[s] = NONE; w_epoch[s] = 0; w_lease[s] = 0; w_left[s] = 0;
    w_cur[s] = 0; w_bak[s] = 0; w_create[s] = 0
}

inline unread(p) { sight[p] = UNREAD; epoch[p] = 0; lease[p] = 0; watched[p] = 0; k_cur[p] = 0; k_bak[p] = 0 }

/* Whoever acts on an id that can never match again is refused, and learns that by reading: the same as not to act. */
inline forget_what_cannot_match() {
    for (i : 0 .. N - 1) {
        if
        :: !k_cur[i] && !k_bak[i] && (sight[i] == VACANT || sight[i] == OWN || sight[i] == OTHERS || sight[i] == DAMAGED) -> unread(i)
        :: r_holder != MISSING && !damages && (sight[i] == NEW || sight[i] == LOST) -> unread(i)
        :: else
        fi
    }
    for (i : 0 .. SLOTS - 1) {
        if
#ifdef BLIND_RELEASE
        :: w_kind[i] == RELEASE
#endif
        :: w_state[i] == FLYING && !w_create[i] && !w_cur[i] && !w_bak[i] -> clear(i)
        :: w_state[i] == FLYING && w_create[i] && r_holder != MISSING && !damages -> clear(i)
        :: else
        fi
    }
    i = 0   /* a d_step may not end in a loop */
}

inline no_copy_is_current() {
    r_bak = 0;
    for (i : 0 .. N - 1) { k_cur[i] = 0 }
    for (i : 0 .. SLOTS - 1) { w_cur[i] = 0 }
}

/* ---- E-1, E-4: election/holding.py -------------------------------------------------------------------------------- */

/* Holding.sending: before any write to the lease is sent. k is 0 for a write that leaves nobody the leader. */
inline sending(p, k) {
#ifdef UNKNOWN_IS_REJECTED
    before[p] = valid[p];
#endif
#ifdef VALID_UNTIL_BY_MAX
    if :: (k) == 0 -> valid[p] = 0 :: else fi
#else
    valid[p] = min(valid[p], LEADER(k))
#endif
#ifdef FLAG_NOT_DEADLINE
    ; if :: (k) == 0 -> flag[p] = 0 :: else fi
#endif
}

/* Holding.confirmed: assigns from the write's own send time. */
inline confirmed(p, s) {
#if defined(LEASE_FROM_ANSWER)
    valid[p] = LEADER(w_lease[s])
#elif defined(VALID_UNTIL_BY_MAX)
    valid[p] = max(valid[p], w_left[s])
#else
    valid[p] = w_left[s]
#endif
#ifdef UNKNOWN_IS_REJECTED
    ; before[p] = 0
#endif
#ifdef FLAG_NOT_DEADLINE
    ; flag[p] = (w_left[s] > 0)
#endif
}

/* The grant in slot s becomes a leadership; with nothing left of it, a term that has ended. */
inline lead(p, s) {
    assert(w_kind[s] == GRANT && w_state[s] != FLYING);              /* I-3 */
    if :: w_left[s] > 0 -> assert(w_epoch[s] > top); top = w_epoch[s] /* I-2 */ :: else fi;
    term[p] = w_epoch[s];
    confirmed(p, s);
#ifdef BACKFILL_AFTER_LEADING
    owes[p] = 1;
#endif
    printf("%d leads under epoch %d, for %d\n", p, term[p], valid[p]);
    know_own(p, s); clear(s)
}

/* The version that slot s made is what we know, unless we have read a later one. */
inline know_own(p, s) {
    if
    :: w_cur[s] || (w_bak[s] && !k_cur[p]) ->
        sight[p] = OWN; epoch[p] = w_epoch[s]; lease[p] = 0; watched[p] = 0; k_cur[p] = w_cur[s]; k_bak[p] = w_bak[s]
    :: else
    fi
}

/* ---- what a process does ------------------------------------------------------------------------------------------ */

#define SLOT(p)         (w_state[2*(p)] == FREE -> 2*(p) : 2*(p) + 1)
#define SLOT_FREE(p)    (w_state[2*(p)] == FREE || w_state[2*(p) + 1] == FREE)
#define IS_WON(p)       (w_state[2*(p)] == WON || w_state[2*(p) + 1] == WON)
#define MAY_SEND(p)     (SLOT_FREE(p) && !IS_WON(p))
/* What a GET would show is a write of ours that is not settled. */
#define READS_OWN(p)    ((w_state[2*(p)] == LANDED && w_cur[2*(p)]) || (w_state[2*(p) + 1] == LANDED && w_cur[2*(p) + 1]))

#ifdef FOLLOWER_CLOCK_BEFORE_READ
#define MAY_READ(p)     (!IS_WON(p) && !READS_OWN(p) && asked[p])
#else
#define MAY_READ(p)     (!IS_WON(p) && !READS_OWN(p))
#endif

inline send(p, kind_, epoch_, k) {
    units = SLOT(p);
    w_state[units] = FLYING; w_kind[units] = kind_; w_epoch[units] = epoch_; w_lease[units] = k; w_left[units] = LEADER(k);
    w_create[units] = (sight[p] == NEW || sight[p] == LOST);
    w_cur[units] = k_cur[p]; w_bak[units] = k_bak[p];
    sending(p, k);
    printf("%d sends: %e, epoch %d, lease %d\n", p, kind_, epoch_, k)
}

/* E-2, E-5: election/decide.py decide. Is the lease over, for all that this process knows? */
#ifdef WALL_CLOCK_EXPIRY
#define LAPSED(p)    (stamp <= 1)
#else
#define LAPSED(p)    (watched[p] >= FOLLOWER(lease[p]))
#endif
/* E-4: at once, but not while hooks of the last term may still run. */
#ifdef STAND_WHILE_VALID
#define TERM_IS_OVER(p)  true
#else
#define TERM_IS_OVER(p)  (!LEASE_VALID(p))
#endif
#define STANDS(p) \
    (MAY_SEND(p) && TERM_IS_OVER(p) && epoch[p] < EPOCHS && \
     (sight[p] == NEW || sight[p] == VACANT || sight[p] == OWN || (sight[p] == OTHERS && LAPSED(p))))

/* E-3: before the CAS, so that a record put back under an earlier epoch cannot be led under any epoch up to this one. */
#if defined(GRANT_WITHOUT_TERM_RECORD) || defined(BACKFILL_AFTER_LEADING)
#define TERM_BEFORE_IS_THERE(p)  true
#else
#define TERM_BEFORE_IS_THERE(p)  (epoch[p] == 0 || terms[epoch[p]])
#endif

#ifdef REBUILD_AT_ONCE
#define DAMAGE_WATCHED(p)  true
#else
#define DAMAGE_WATCHED(p)  (watched[p] >= FOLLOWER(LONG))
#endif

/* A LOST or DAMAGED record, as it is seen now. */
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

inline learn(p, s) {
    printf("%d learns: %e, epoch %d, was applied\n", p, w_kind[s], w_epoch[s]);
    if
    :: w_kind[s] == RENEW ->
        /* E-4: a term that has ended, by time or by sending a release, is not revived. */
        if :: LEASE_VALID(p) -> confirmed(p, s) :: else fi;
        know_own(p, s); clear(s)
    :: w_kind[s] == GRANT && w_epoch[s] <= term[p] -> clear(s) /* a stand of long ago, landed on a record put back */
    :: else ->
#ifdef GRANT_WITHOUT_TERM_RECORD
        lead(p, s)
#else
        w_state[s] = WON
#endif
    fi
}

inline create_term(p, s) {
    terms[w_epoch[s]] = p + 1;
    printf("  lands: term %d of %d\n", w_epoch[s], p)
}

inline confirm(p, s) {
    if
    :: terms[w_epoch[s]] == p + 1 -> lead(p, s)
    :: else ->
        printf("%d is refused term %d\n", p, w_epoch[s]);
        /* E-3: another's. Somebody led, or may lead, under this epoch: the record is damaged, although we wrote it. */
        if
#ifdef STAND_AFTER_REJECTED_TERM
        :: w_cur[s] -> know_own(p, s)
#else
        :: w_cur[s] -> unread(p); k_cur[p] = 1; k_bak[p] = w_bak[s]; see_damage(p, DAMAGED)
#endif
        :: else
        fi;
        clear(s)
    fi
}

proctype Process(byte p) {
    do
    /* LeaseDesk.read, then sight.py observe: the clock is read after the response. */
    :: d_step { MAY_READ(p) ->
        if
        :: r_holder == MISSING ->
            list_terms();
            k_cur[p] = 0; k_bak[p] = 0;
            if
            :: newest == 0 -> unread(p); sight[p] = NEW
            :: else -> see_damage(p, LOST)
            fi
        :: r_holder != MISSING && !k_cur[p] ->
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
        :: else /* the version that we know */
        fi;
#ifdef FOLLOWER_CLOCK_BEFORE_READ
        asked[p] = 0;
#endif
        printf("%d reads: %e, epoch %d\n", p, sight[p], epoch[p]) }
#ifdef FOLLOWER_CLOCK_BEFORE_READ
    :: d_step { asked[p] == 0 -> asked[p] = 1; printf("%d sends a GET\n", p) }
#endif

    /* observe, E-9: a look at terms/ shows that the record was put back. When we look is open. */
    :: d_step { k_cur[p] && !IS_WON(p) ->
        list_terms();
        if
        :: sight[p] == DAMAGED || r_epoch < newest -> see_damage(p, DAMAGED); printf("%d sees damage, newest term %d\n", p, newest)
        :: else
        fi }

    /* LeaseDesk.renew, with either length of lease; Holding.sending. */
    :: d_step { MAY_SEND(p) && sight[p] == OWN && LEASE_VALID(p) -> send(p, RENEW, epoch[p], LONG) }
#if SHORT < LONG
    :: d_step { MAY_SEND(p) && sight[p] == OWN && LEASE_VALID(p) -> send(p, RENEW, epoch[p], SHORT) }
#endif

    /* LeaseDesk.stand: the term before it first, then the CAS. */
    :: d_step { STANDS(p) && !TERM_BEFORE_IS_THERE(p) ->
        terms[epoch[p]] = UNCONFIRMED; printf("%d fills in term %d\n", p, epoch[p]) }
    :: d_step { STANDS(p) && TERM_BEFORE_IS_THERE(p) -> send(p, GRANT, epoch[p] + 1, LONG) }
#if SHORT < LONG
    :: d_step { STANDS(p) && TERM_BEFORE_IS_THERE(p) -> send(p, GRANT, epoch[p] + 1, SHORT) }
#endif

    /* LeaseDesk.release, E-5; also once more, when it was read back that the record is still ours. */
#ifdef EPOCH_RESET_ON_RELEASE
    :: d_step { MAY_SEND(p) && sight[p] == OWN -> send(p, RELEASE, 0, 0) }
#else
    :: d_step { MAY_SEND(p) && sight[p] == OWN -> send(p, RELEASE, epoch[p], 0) }
#endif

    /* LeaseDesk.rebuild, E-9: vacant, under the newest epoch of terms/, so that the next grant is above all of them. */
    :: d_step { MAY_SEND(p) && (sight[p] == LOST || sight[p] == DAMAGED) && DAMAGE_WATCHED(p) ->
        send(p, REBUILD, epoch[p], 0) }

    /* The answer to LeaseDesk.renew or LeaseDesk.stand, or LeaseDesk.settle: the write in this slot was applied. */
    :: d_step { w_state[2*p] == LANDED && !IS_WON(p) -> learn(p, 2*p) }
    :: d_step { w_state[2*p + 1] == LANDED && !IS_WON(p) -> learn(p, 2*p + 1) }

    /* LeaseDesk.confirm: terms/{epoch} is created, then its answer or reading it back says whose it is. */
    :: d_step { w_state[2*p] == WON && !terms[w_epoch[2*p]] -> create_term(p, 2*p) }
    :: d_step { w_state[2*p + 1] == WON && !terms[w_epoch[2*p + 1]] -> create_term(p, 2*p + 1) }
    :: d_step { w_state[2*p] == WON && terms[w_epoch[2*p]] -> confirm(p, 2*p) }
    :: d_step { w_state[2*p + 1] == WON && terms[w_epoch[2*p + 1]] -> confirm(p, 2*p + 1) }

#ifdef BACKFILL_AFTER_LEADING
    :: d_step { owes[p] ->
        owes[p] = 0;
        if :: term[p] > 1 && !terms[term[p] - 1] -> terms[term[p] - 1] = UNCONFIRMED :: else fi }
#endif
#ifdef FLAG_NOT_DEADLINE
    :: d_step { flag[p] && valid[p] == 0 -> flag[p] = 0 }
#endif
#ifdef UNKNOWN_IS_APPLIED
    :: d_step { w_state[2*p] == FLYING && w_kind[2*p] == RENEW && valid[p] -> confirmed(p, 2*p) }
    :: d_step { w_state[2*p + 1] == FLYING && w_kind[2*p + 1] == RENEW && valid[p] -> confirmed(p, 2*p + 1) }
#endif
#ifdef UNKNOWN_IS_REJECTED
    :: d_step { before[p] -> valid[p] = before[p]; before[p] = 0 }
#endif
    od
}

/* ---- what the network and the store do with a write in flight ----------------------------------------------------- */

#define CONDITION_HOLDS(s)  (w_create[s] -> r_holder == MISSING : w_cur[s])
#ifdef BLIND_RELEASE
#define LANDS(s)  (w_state[s] == FLYING && (CONDITION_HOLDS(s) || w_kind[s] == RELEASE))
#else
#define LANDS(s)  (w_state[s] == FLYING && CONDITION_HOLDS(s))
#endif

inline land(p, s) {
    printf("  lands: %e of %d, epoch %d\n", w_kind[s], p, w_epoch[s]);
    if :: !w_create[s] -> assert(w_epoch[s] >= r_epoch) /* I-2 */ :: else fi;
    no_copy_is_current();
    r_epoch = w_epoch[s]; r_lease = w_lease[s];
#ifdef WALL_CLOCK_EXPIRY
    stamp = w_lease[s];
#endif
    if
    :: w_kind[s] == RENEW || w_kind[s] == GRANT -> r_holder = p + 1; w_state[s] = LANDED; w_cur[s] = 1; w_bak[s] = 0; w_create[s] = 0
    :: else -> r_holder = NOBODY; clear(s) /* what its process would learn, it learns by reading */
    fi;
    forget_what_cannot_match()
}

proctype Network(byte p) {
    do
    :: d_step { LANDS(2*p) -> land(p, 2*p) }
    :: d_step { LANDS(2*p + 1) -> land(p, 2*p + 1) }
    /* The request is lost. */
    :: d_step { w_state[2*p] == FLYING -> clear(2*p) }
    :: d_step { w_state[2*p + 1] == FLYING -> clear(2*p + 1) }
    /* The answer is lost, and reading back cannot tell any more. */
    :: d_step { w_state[2*p] == LANDED && !w_cur[2*p] && !w_bak[2*p] -> clear(2*p) }
    :: d_step { w_state[2*p + 1] == LANDED && !w_cur[2*p + 1] && !w_bak[2*p + 1] -> clear(2*p + 1) }
    od
}

/* ---- time --------------------------------------------------------------------------------------------------------- */

inline tick(fast) {     /* bit p of `fast`: how process p's clock runs during this tick */
    printf("    tick %d\n", fast);
    for (i : 0 .. N - 1) {
        units = 1 + ((fast >> i) & 1);
        valid[i] = less(valid[i], units);
        w_left[2*i] = less(w_left[2*i], units);
        w_left[2*i + 1] = less(w_left[2*i + 1], units);
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
    i = 0
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

/* ---- damage, E-9 -------------------------------------------------------------------------------------------------- */

#if DAMAGES > 0
#ifdef ROLLBACK_WITHIN_TERM
#define PUT_BACK_ALLOWED  (b_epoch <= r_epoch)
#else
#define PUT_BACK_ALLOWED  (b_epoch < r_epoch)
#endif

inline drop_backup() {
    b_taken = 0; b_holder = 0; b_epoch = 0; b_lease = 0; r_bak = 0;
    for (i : 0 .. N - 1) { k_bak[i] = 0 }
    for (i : 0 .. SLOTS - 1) { w_bak[i] = 0 }
}

proctype Damage() {
    do
    :: d_step { damages && !b_taken && r_holder != MISSING ->
        b_taken = 1; b_holder = r_holder; b_epoch = r_epoch; b_lease = r_lease; r_bak = 1;
        for (i : 0 .. N - 1) { k_bak[i] = k_cur[i] }
        for (i : 0 .. SLOTS - 1) { w_bak[i] = w_cur[i] }
        i = 0 }

    /* The record is lost. */
    :: d_step { damages && r_holder != MISSING ->
        damages--;
        no_copy_is_current();
        r_holder = MISSING; r_lease = 0;
        printf("  the record is lost\n");
        if :: damages == 0 -> drop_backup() :: else fi;
        forget_what_cannot_match() }

    /* The record is put back to what it was under an earlier epoch: bytes and version. */
    :: d_step { damages && b_taken && PUT_BACK_ALLOWED ->
        damages--;
        r_holder = b_holder; r_epoch = b_epoch; r_lease = b_lease; r_bak = 1;
        for (i : 0 .. N - 1) { k_cur[i] = k_bak[i] }
        for (i : 0 .. SLOTS - 1) { w_cur[i] = w_bak[i] }
        if :: damages == 0 -> drop_backup() :: else fi;
        forget_what_cannot_match() }
    od
}
#endif

/* ---- I-1, at every instant ---------------------------------------------------------------------------------------- */

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
        run Process(0); run Network(0);
        run Process(1); run Network(1);
#if N > 2
        run Process(2); run Network(2);
#endif
#if DAMAGES > 0
        run Damage();
#endif
        run Time();
        run Instant()
    }
}

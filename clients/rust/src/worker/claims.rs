//! The claims that a worker holds: when each must be kept, what its handler led to, and which of that
//! the server has answered. Pure: it sends nothing, starts nothing, and is told the time.

use super::{
    handlers::Handler,
    run::{Ended, Timeout},
};
use crate::{
    Cause, Error, Job, Outcome, StopReason, Task,
    job::Controls,
    retry::{Backoff, STREAMS},
    view::span,
};
use bytes::Bytes;
use prost::Message as _;
use rdq_proto::v1;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fmt,
    time::Duration,
};
use tokio::time::Instant;
use tonic::Code;

/// What one message carries at most: the server takes 1,000 items and 8 MiB.
const ITEMS_MAX: usize = 1_000;
const OUTCOME_BYTES_MAX: usize = 3 << 20;
const BEAT_BYTES_MAX: usize = 1 << 20;
/// A handler that starts has so much of its lease, unless that is more than half of it.
const LEFT_MIN: Duration = Duration::from_millis(100);

/// The claims of a worker, by numbers of its own.
#[derive(Debug, Default)]
pub(super) struct Claims {
    held: HashMap<i64, Held>,
    /// The last claim of each task.
    by_task: HashMap<String, i64>,
    beats: BTreeSet<(Instant, i64)>,
    /// Outcomes that are sent now, and those that are sent again later.
    ready: VecDeque<i64>,
    later: BTreeSet<(Instant, i64)>,
    last_key: i64,
}

#[derive(Debug)]
struct Held {
    id: String,
    token: Bytes,
    generation: i64,
    lease: Duration,
    /// As far as this side knows.
    lease_ends: Instant,
    beat_at: Instant,
    is_beating: bool,
    /// The checkpoint that goes with the heartbeat that is on its way.
    progress_sent: Option<u64>,
    controls: Controls,
    /// Somebody else ended the claim: what the handler does counts no more.
    is_gone: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Waiting,
    Running,
    /// The handler ended; its last checkpoint goes before the outcome.
    Flushing(Box<v1::Resolution>),
    Ending(Box<Ending>),
}

/// An outcome, until it is answered.
#[derive(Debug)]
struct Ending {
    resolution: v1::Resolution,
    via: Option<Via>,
    /// An earlier answer may have been lost.
    was_sent: bool,
    /// It says that another outcome was refused.
    is_last_word: bool,
    backoff: Backoff,
}

/// The way of what is not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    Stream,
    Call,
}

/// A claim that came.
pub(super) struct Arrival {
    pub(super) key: i64,
    pub(super) job: Job,
    pub(super) controls: Controls,
    pub(super) timeout: Option<Timeout>,
    /// No handler of another version may run it.
    pub(super) is_strict: bool,
}

/// A claim that waits for its handler to be free.
pub(super) struct Waiting {
    pub(super) arrival: Arrival,
    pub(super) handler: Handler,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("job", &self.arrival.job).finish_non_exhaustive()
    }
}

impl Claims {
    /// How many are held: from their arrival until the answer to their outcome.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes in what came. An earlier claim of the same task is lost by that.
    pub(super) fn arrive(
        &mut self,
        claim: v1::ClaimedTask,
        arrived: Instant,
    ) -> Result<Arrival, Error> {
        let task = Task::decode(claim.task)?;
        self.last_key += 1;
        let key = self.last_key;
        let left = span(claim.lease_remaining.as_ref()).unwrap_or_default();
        let lease = whole_lease(&task, left);
        let controls = Controls::default();
        let held = Held {
            id: task.id().to_owned(),
            token: claim.claim_token,
            generation: claim.generation,
            lease,
            lease_ends: arrived + left,
            beat_at: arrived + (lease / 3).min(left / 2),
            is_beating: false,
            progress_sent: None,
            controls: controls.clone(),
            is_gone: false,
            phase: Phase::Waiting,
        };
        self.beats.insert((held.beat_at, key));
        let earlier = self.by_task.insert(held.id.clone(), key);
        self.held.insert(key, held);
        if let Some(earlier) = earlier {
            self.lose(earlier, StopReason::Lost);
        }
        let mismatch = v1::HandlerVersionMismatch::try_from(claim.version_mismatch);
        Ok(Arrival {
            key,
            job: Job::new(
                task,
                (claim.attempt_no, claim.max_attempts, claim.generation),
                controls.clone(),
            ),
            controls,
            timeout: span(claim.execution_timeout.as_ref())
                .map(|timeout| Timeout::of_claim(arrived, timeout)),
            is_strict: mismatch == Ok(v1::HandlerVersionMismatch::DeadLetter),
        })
    }

    /// Whether a handler may start now. If so it is running; if too little is left of its lease, the
    /// claim is given back; if the claim is gone, nothing is left to do.
    pub(super) fn start(&mut self, key: i64, now: Instant) -> bool {
        let Some(held) = self.held.get_mut(&key) else { return false };
        let left = held.lease_ends.saturating_duration_since(now);
        if is_enough(left, held.lease) {
            held.phase = Phase::Running;
            return true;
        }
        tracing::warn!(task = held.id, ?left, "too little is left of the lease: given back");
        self.end(key, Outcome::Snooze(Duration::ZERO), now);
        false
    }

    /// Whether it waits for a handler, and may go on waiting.
    pub(super) fn is_waiting(&self, key: i64) -> bool {
        self.held.get(&key).is_some_and(|held| matches!(held.phase, Phase::Waiting))
    }

    /// The claim ends so, unless it is gone.
    pub(super) fn end(&mut self, key: i64, outcome: Outcome, now: Instant) {
        let Some(held) = self.held.get_mut(&key) else { return };
        if held.is_gone {
            self.remove(key);
            return;
        }
        let keeps_progress = !matches!(outcome, Outcome::Complete(_));
        let resolution = outcome.resolution(held.id.clone(), held.token.clone());
        if keeps_progress && held.controls.new_progress().is_some() {
            held.phase = Phase::Flushing(Box::new(resolution));
            self.beat_at(key, now);
        } else {
            self.send(key, resolution);
        }
    }

    /// A handler ended.
    pub(super) fn ended(&mut self, key: i64, ended: Ended, now: Instant) {
        match ended {
            Ended::Returned(outcome) => self.end(key, outcome, now),
            Ended::TimedOut => {
                let cause = Cause::new("rdq.Timeout", "the execution timeout is over");
                self.end(key, Outcome::Fail(cause), now);
            }
            Ended::Stopped => self.end(key, Outcome::Snooze(Duration::ZERO), now),
        }
    }

    /// The server says that a claim is over.
    pub(super) fn lost(&mut self, lost: &v1::LostClaim) {
        let is_it = |held: &Held| held.id == lost.id && held.generation == lost.generation;
        let newest = self.by_task.get(&lost.id).copied();
        let newest = newest.filter(|key| self.held.get(key).is_some_and(is_it));
        let key = newest.or_else(|| self.held.iter().find(|(_, held)| is_it(held)).map(|it| *it.0));
        if let Some(key) = key {
            self.lose(key, StopReason::of_detail(Some(&lost.detail)));
        }
    }

    fn lose(&mut self, key: i64, reason: StopReason) {
        let Some(held) = self.held.get_mut(&key) else { return };
        match held.phase {
            Phase::Running => {
                tracing::info!(
                    task = held.id,
                    ?reason,
                    "the claim is over: the handler is stopped"
                );
                held.is_gone = true;
                held.controls.stop(reason);
            }
            Phase::Waiting | Phase::Flushing(_) => self.remove(key),
            // Its own answer says what became of it.
            Phase::Ending(_) => {}
        }
    }

    /// Every running handler is to end.
    pub(super) fn stop_running(&self, reason: StopReason) {
        for held in self.held.values().filter(|held| matches!(held.phase, Phase::Running)) {
            held.controls.stop(reason);
        }
    }

    /// When there is something to send next, after now.
    pub(super) fn next_after(&self, now: Instant) -> Option<Instant> {
        let next = |times: &BTreeSet<(Instant, i64)>| {
            times.range((now, i64::MAX)..).next().map(|(at, _)| *at)
        };
        next(&self.beats).into_iter().chain(next(&self.later)).min()
    }

    /// Whether there is something to send now.
    pub(super) fn has_outcomes(&mut self, now: Instant) -> bool {
        while let Some((at, key)) = self.later.first().copied()
            && at <= now
        {
            self.later.pop_first();
            self.ready.push_back(key);
        }
        !self.ready.is_empty()
    }

    pub(super) fn has_beats(&self, now: Instant) -> bool {
        self.beats.first().is_some_and(|(at, _)| *at <= now)
    }

    /// Outcomes to send now, as many as one message carries.
    pub(super) fn take_outcomes(&mut self, via: Via) -> Vec<(i64, v1::Resolution)> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(key) = self.ready.front().copied()
            && taken.len() < ITEMS_MAX
        {
            let Some(Held { phase: Phase::Ending(ending), .. }) = self.held.get_mut(&key) else {
                self.ready.pop_front();
                continue;
            };
            let size = ending.resolution.encoded_len();
            if !taken.is_empty() && bytes + size > OUTCOME_BYTES_MAX {
                break;
            }
            bytes += size;
            ending.via = Some(via);
            taken.push((key, ending.resolution.clone()));
            self.ready.pop_front();
        }
        taken
    }

    /// Heartbeats to send now, as many as one message carries. Each is due again soon, in case that
    /// it gets no answer.
    pub(super) fn take_beats(&mut self, now: Instant) -> Vec<(i64, v1::ExtendLeaseRequest)> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some((at, key)) = self.beats.first().copied()
            && at <= now
            && taken.len() < ITEMS_MAX
            && bytes < BEAT_BYTES_MAX
        {
            let Some(held) = self.held.get_mut(&key) else {
                self.beats.pop_first();
                continue;
            };
            let progress = held.controls.new_progress();
            held.progress_sent = progress.as_ref().map(|(version, _)| *version);
            held.is_beating = true;
            let progress = progress.map(|(_, progress)| progress);
            bytes += progress.as_ref().map_or(0, Bytes::len);
            let (id, claim_token) = (held.id.clone(), held.token.clone());
            taken.push((key, v1::ExtendLeaseRequest { id, claim_token, lease: None, progress }));
            let again = now + soon(held.lease);
            self.beat_at(key, again);
        }
        taken
    }

    /// The answer to a heartbeat.
    pub(super) fn beat_answered(
        &mut self,
        key: i64,
        answer: Result<v1::ExtendLeaseResponse, Error>,
        now: Instant,
    ) {
        let Some(held) = self.held.get_mut(&key) else { return };
        held.is_beating = false;
        match answer {
            Ok(extended) => {
                let left = span(extended.lease_remaining.as_ref()).unwrap_or(held.lease);
                held.lease_ends = now + left;
                if let Some(version) = held.progress_sent.take() {
                    held.controls.progress_stored(version);
                }
                let next = now + (held.lease / 3).max(soon(held.lease));
                self.beat_at(key, next);
                self.flushed(key);
            }
            Err(error @ (Error::StaleClaim(_) | Error::NotFound(_))) => {
                self.lose(key, StopReason::of_detail(error.metadata("detail")));
            }
            // The lease matters more than a checkpoint that the server does not take.
            Err(Error::PayloadTooLarge(_) | Error::InvalidArgument(_))
                if held.progress_sent.is_some() =>
            {
                tracing::warn!(task = held.id, "the server refused the checkpoint: it is dropped");
                if let Some(version) = held.progress_sent.take() {
                    held.controls.progress_stored(version);
                }
                self.beat_at(key, now);
                self.flushed(key);
            }
            Err(error) => {
                tracing::debug!(task = held.id, code = ?error.code(), "a heartbeat failed");
                let again = now + soon(held.lease);
                self.beat_at(key, again);
            }
        }
    }

    /// The checkpoint is stored: the outcome may go.
    fn flushed(&mut self, key: i64) {
        let Some(held) = self.held.get_mut(&key) else { return };
        if !matches!(held.phase, Phase::Flushing(_)) || held.controls.new_progress().is_some() {
            return;
        }
        let phase = std::mem::replace(&mut held.phase, Phase::Running);
        if let Phase::Flushing(resolution) = phase {
            self.send(key, *resolution);
        }
    }

    /// The answer to an outcome, or what became of the call that carried it.
    pub(super) fn outcome_answered(
        &mut self,
        key: i64,
        answer: Result<v1::ResolvedClaim, Error>,
        now: Instant,
    ) {
        let Some(held) = self.held.get_mut(&key) else { return };
        let Phase::Ending(ending) = &mut held.phase else { return };
        ending.via = None;
        let was_sent = std::mem::replace(&mut ending.was_sent, true);
        match answer {
            Ok(_) => self.remove(key),
            Err(Error::NotFound(_)) => {
                if !was_sent {
                    tracing::warn!(task = held.id, "the task is gone: its outcome is lost");
                }
                self.remove(key);
            }
            Err(error @ Error::StaleClaim(_)) => {
                let detail = error.metadata("detail");
                tracing::warn!(task = held.id, detail, "the claim was lost: so is its outcome");
                self.remove(key);
            }
            Err(error) if error.is_retryable() || error.code() == Code::DeadlineExceeded => {
                let wait = ending.backoff.next().max(error.retry_after().unwrap_or_default());
                self.later.insert((now + wait, key));
            }
            Err(error) => self.refused(key, &error),
        }
    }

    /// The server does not take the outcome. A failure says so; if that is refused too, the lease
    /// runs out.
    fn refused(&mut self, key: i64, error: &Error) {
        let Some(held) = self.held.get_mut(&key) else { return };
        let (code, reason) = (error.code(), error.reason());
        let Phase::Ending(ending) = &mut held.phase else { return };
        if ending.is_last_word {
            tracing::error!(task = held.id, ?code, reason, "the server takes no outcome: given up");
            self.remove(key);
            return;
        }
        tracing::error!(task = held.id, ?code, reason, "the server refused the outcome");
        let cause = Cause::new("rdq.OutcomeRefused", error.message());
        ending.resolution = Outcome::Fail(cause).resolution(held.id.clone(), held.token.clone());
        ending.is_last_word = true;
        ending.was_sent = false;
        ending.backoff.reset();
        self.ready.push_back(key);
    }

    /// The stream is over: what it did not answer is sent again.
    pub(super) fn stream_ended(&mut self, now: Instant) {
        let mut beating = Vec::new();
        let mut unanswered = Vec::new();
        for (key, held) in &mut self.held {
            if held.is_beating {
                beating.push(*key);
            }
            if let Phase::Ending(ending) = &mut held.phase
                && ending.via == Some(Via::Stream)
            {
                ending.via = None;
                ending.was_sent = true;
                unanswered.push(*key);
            }
        }
        unanswered.sort_unstable();
        self.ready.extend(unanswered);
        for key in beating {
            self.beat_at(key, now);
        }
    }

    fn send(&mut self, key: i64, resolution: v1::Resolution) {
        let Some(held) = self.held.get_mut(&key) else { return };
        let size = resolution.encoded_len();
        held.phase = Phase::Ending(Box::new(Ending {
            resolution,
            via: None,
            was_sent: false,
            is_last_word: false,
            backoff: Backoff::new(STREAMS),
        }));
        if size > OUTCOME_BYTES_MAX {
            // The server would refuse the whole message, with all that goes along.
            let message = format!("an outcome of {size} bytes is too large to be sent");
            let reason = v1::ErrorReason::MessageTooLarge;
            self.refused(key, &Error::local(reason, Code::ResourceExhausted, message));
        } else {
            self.ready.push_back(key);
        }
    }

    fn beat_at(&mut self, key: i64, at: Instant) {
        if let Some(held) = self.held.get_mut(&key) {
            self.beats.remove(&(held.beat_at, key));
            held.beat_at = at;
            self.beats.insert((at, key));
        }
    }

    fn remove(&mut self, key: i64) {
        if let Some(held) = self.held.remove(&key) {
            self.beats.remove(&(held.beat_at, key));
            if self.by_task.get(&held.id) == Some(&key) {
                self.by_task.remove(&held.id);
            }
        }
    }
}

/// When what got no answer is sent again.
fn soon(lease: Duration) -> Duration {
    (lease / 10).max(Duration::from_millis(1))
}

/// The lease that the claim was given, of which some is over already.
fn whole_lease(task: &Task, left: Duration) -> Duration {
    let whole = task.lease_expires_at().zip(task.claimed_at());
    let whole = whole.and_then(|(end, start)| end.duration_since(start).ok());
    whole.unwrap_or_default().max(left).max(Duration::from_millis(10))
}

/// Whether a handler may start with so much left of its lease.
fn is_enough(left: Duration, lease: Duration) -> bool {
    left >= (lease / 10).max(LEFT_MIN).min(lease / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdq_proto::time;
    use tonic::Status;

    const LEASE: Duration = Duration::from_secs(30);

    fn claim(id: &str, generation: i64) -> v1::ClaimedTask {
        let task = v1::Task { id: id.into(), ..v1::Task::default() };
        v1::ClaimedTask {
            task: task.encode_to_vec().into(),
            claim_token: Bytes::from(generation.to_string()),
            generation,
            lease_remaining: Some(time::duration(LEASE)),
            ..v1::ClaimedTask::default()
        }
    }

    fn started(claims: &mut Claims, id: &str, generation: i64, at: Instant) -> Arrival {
        let arrival = claims.arrive(claim(id, generation), at).unwrap();
        assert!(claims.start(arrival.key, at));
        arrival
    }

    fn error(reason: v1::ErrorReason, code: Code) -> Error {
        Error::local(reason, code, "said so")
    }

    fn unavailable() -> Error {
        error(v1::ErrorReason::StorageUnavailable, Code::Unavailable)
    }

    fn call(resolution: &v1::Resolution) -> &v1::resolution::Call {
        resolution.call.as_ref().unwrap()
    }

    fn done() -> Outcome {
        Outcome::from("done")
    }

    #[test]
    fn a_handler_starts_on_what_is_enough_of_a_lease() {
        let ms = Duration::from_millis;
        for (left, lease, is) in [
            (ms(3_000), LEASE, true), // a tenth
            (ms(2_999), LEASE, false),
            (ms(100), ms(500), true), // 100 ms are more than a tenth
            (ms(99), ms(500), false),
            (ms(50), ms(100), true), // but never more than a half
            (ms(49), ms(100), false),
        ] {
            assert_eq!(is_enough(left, lease), is, "{left:?} of {lease:?}");
        }
    }

    #[test]
    fn a_claim_that_waited_too_long_is_given_back() {
        let (mut claims, at) = (Claims::default(), crate::client::now());
        let late = claims.arrive(claim("a", 1), at).unwrap();
        assert!(!claims.start(late.key, at + LEASE * 9 / 10 + Duration::from_millis(1)));
        let taken = claims.take_outcomes(Via::Call);
        assert!(matches!(call(&taken[0].1), v1::resolution::Call::Release(_)));
    }

    #[test]
    fn a_claim_is_kept_at_a_third_of_its_lease_and_again_soon_if_that_is_not_answered() {
        let (mut claims, at) = (Claims::default(), crate::client::now());
        let key = started(&mut claims, "a", 1, at).key;
        assert_eq!(claims.next_after(at), Some(at + LEASE / 3));
        assert!(claims.take_beats(at).is_empty());
        let at = at + LEASE / 3;
        assert_eq!(claims.take_beats(at).len(), 1);
        assert_eq!(claims.next_after(at), Some(at + LEASE / 10));
        let left = Some(time::duration(LEASE));
        let kept = v1::ExtendLeaseResponse { lease_remaining: left, ..Default::default() };
        claims.beat_answered(key, Ok(kept), at);
        assert_eq!(claims.next_after(at), Some(at + LEASE / 3));
        claims.take_beats(at + LEASE / 3);
        claims.beat_answered(key, Err(unavailable()), at + LEASE / 3);
        assert_eq!(claims.next_after(at), Some(at + LEASE / 3 + LEASE / 10));
    }

    #[test]
    fn the_same_task_again_stops_the_first_handler_and_touches_not_the_second() {
        let (mut claims, at) = (Claims::default(), crate::client::now());
        let first = started(&mut claims, "a", 1, at);
        let second = started(&mut claims, "a", 2, at);
        assert_eq!(first.job.stop_reason(), Some(StopReason::Lost));
        claims.ended(first.key, Ended::Returned(done()), at);
        assert!(!claims.has_outcomes(at), "the first sends nothing");
        claims.lost(&v1::LostClaim { id: "a".into(), generation: 1, detail: String::new() });
        assert_eq!(second.job.stop_reason(), None);
        claims.ended(second.key, Ended::Returned(done()), at);
        assert_eq!(claims.take_outcomes(Via::Stream)[0].0, second.key);
    }

    #[test]
    fn a_refused_heartbeat_says_why_the_handler_stops() {
        let (mut claims, at) = (Claims::default(), crate::client::now());
        for (id, detail, reason) in [
            ("a", Some("CANCELLED"), StopReason::Cancelled),
            ("b", Some("EXPIRED"), StopReason::Expired),
            ("c", None, StopReason::Lost),
        ] {
            let arrival = started(&mut claims, id, 1, at);
            let detail = detail.map(|detail| ("detail".to_owned(), detail.to_owned()));
            let (stale, code) = (v1::ErrorReason::StaleClaim, Code::FailedPrecondition);
            let stale = Error::local_with(stale, code, "", detail.into_iter().collect());
            claims.beat_answered(arrival.key, Err(stale), at);
            assert_eq!(arrival.job.stop_reason(), Some(reason));
            claims.ended(arrival.key, Ended::Stopped, at);
        }
        assert!(claims.is_empty() && !claims.has_outcomes(at));
    }

    #[test]
    fn an_outcome_is_sent_until_it_is_answered() {
        let (mut claims, at) = (Claims::default(), crate::client::now());
        let key = started(&mut claims, "a", 1, at).key;
        claims.ended(key, Ended::Returned(done()), at);
        assert_eq!(claims.take_outcomes(Via::Stream).len(), 1);
        assert!(!claims.has_outcomes(at), "it is on its way");
        claims.stream_ended(at);
        let again = claims.take_outcomes(Via::Call);
        assert!(matches!(call(&again[0].1), v1::resolution::Call::Complete(_)));
        claims.outcome_answered(key, Err(unavailable()), at);
        assert!(claims.has_outcomes(at + Duration::from_millis(100)), "after a backoff");
        claims.take_outcomes(Via::Call);
        // The first one had arrived, and the task was forgotten since.
        claims.outcome_answered(key, Err(Status::not_found("").into()), at);
        assert_eq!(claims.len(), 1, "by its code alone nothing is known");
        assert!(claims.has_outcomes(at), "a refusal is told");
        claims.take_outcomes(Via::Call);
        let gone = error(v1::ErrorReason::NotFound, Code::NotFound);
        claims.outcome_answered(key, Err(gone), at);
        assert!(claims.is_empty());
    }

    #[test]
    fn a_refused_outcome_becomes_a_failure_once() {
        let (mut claims, at) = (Claims::default(), crate::client::now());
        let key = started(&mut claims, "a", 1, at).key;
        claims.ended(key, Ended::Returned(vec![0; OUTCOME_BYTES_MAX].into()), at);
        let taken = claims.take_outcomes(Via::Stream);
        assert!(matches!(call(&taken[0].1), v1::resolution::Call::Fail(_)), "too large to send");
        let refusal = error(v1::ErrorReason::InvalidArgument, Code::InvalidArgument);
        claims.outcome_answered(key, Err(refusal), at);
        assert!(claims.is_empty(), "the lease runs out");
    }

    #[test]
    fn a_checkpoint_goes_before_the_outcome_of_an_attempt_that_failed() {
        let (mut claims, at) = (Claims::default(), crate::client::now());
        let arrival = started(&mut claims, "a", 1, at);
        arrival.job.set_progress("half").unwrap();
        let failed = Outcome::Fail(Cause::new("t", "m"));
        claims.ended(arrival.key, Ended::Returned(failed), at);
        assert!(!claims.has_outcomes(at));
        let beats = claims.take_beats(at);
        assert_eq!(beats[0].1.progress.as_deref(), Some(&b"half"[..]));
        claims.beat_answered(arrival.key, Ok(v1::ExtendLeaseResponse::default()), at);
        assert!(claims.has_outcomes(at));
    }

    #[test]
    fn messages_are_cut_by_count_and_by_bytes() {
        let (mut claims, at) = (Claims::default(), crate::client::now());
        for number in 0..1_001_i64 {
            let key = started(&mut claims, &number.to_string(), 1, at).key;
            let size = if number < 4 { 1 << 20 } else { 0 };
            claims.ended(key, Ended::Returned(vec![0; size].into()), at);
        }
        let sizes: Vec<_> = std::iter::from_fn(|| {
            claims.has_outcomes(at).then(|| claims.take_outcomes(Via::Call).len())
        })
        .collect();
        assert_eq!(sizes, [2, 999]);
        assert_eq!(claims.take_beats(at + LEASE).len(), ITEMS_MAX);
    }
}

//! The worker's loop: one task that owns the stream, the claims and the handlers, and does one thing
//! after the other. What is decided of a claim is decided in `claims`.

use super::{
    Receive, Settings, Stopped,
    claims::{Arrival, Claims, Via, Waiting},
    handlers::Route,
    link::{Event, Link, grant},
    run::{Ended, Run, panicked},
};
use crate::{
    Cause, Client, Error, HandlerError, Outcome, StopReason,
    client::{Try, now},
    retry::{Backoff, STREAMS},
};
use rdq_proto::v1::{self, extend_lease_result, resolve_result};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::{self, JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tonic::Code;

/// Unary calls of each kind under way at once. What comes meanwhile gathers into the next.
const CALLS_MAX: usize = 4;
/// When nothing is held any more, a stream has so long to end.
const STREAM_END: Duration = Duration::from_secs(1);
/// After the grace, outcomes have so long to be answered.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Of these, so much is for the handlers that were stopped; the rest is for giving their claims back.
const RELEASE_WITHIN: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(3_600);

/// A worker that runs.
#[derive(Debug)]
pub(super) struct Driver {
    client: Client,
    settings: Arc<Settings>,
    claims: Claims,
    /// Claims whose handlers are not free yet, in their order.
    waiting: VecDeque<Waiting>,
    runs: JoinSet<Ended>,
    /// The claim of each run.
    run_keys: HashMap<task::Id, i64>,
    calls: JoinSet<Answered>,
    outcome_calls: usize,
    beat_calls: usize,
    link: Option<Link>,
    /// When the next stream is opened, while there is none.
    connect_at: Instant,
    backoff: Backoff,
    by_claim_due: bool,
    /// A stream of this server came up, so it speaks this client's contract.
    contract_is_known: bool,
    /// Why the worker cannot work.
    failure: Option<Error>,
    stopping: Option<Stopping>,
}

/// Until when a worker that is being stopped goes on.
#[derive(Debug)]
struct Stopping {
    /// The handlers may run.
    grace: Instant,
    handlers_stopped: bool,
    /// The claims of handlers that have not ended yet are given back.
    release: Instant,
    released: bool,
    /// A stream that does not end is waited for; none while something is held.
    stream: Option<Instant>,
    /// At last.
    end: Instant,
}

/// What unary calls answered, claim by claim.
#[derive(Debug)]
enum Answered {
    Outcomes {
        answers: Vec<(i64, Result<v1::ResolvedClaim, Error>)>,
        /// The server refused the request, for one of its outcomes or all together.
        refused: bool,
    },
    Beats(Vec<(i64, Result<v1::ExtendLeaseResponse, Error>)>),
}

impl Driver {
    pub(super) fn new(client: Client, settings: Arc<Settings>) -> Self {
        let by_claim_due = settings.receive == Receive::ClaimDue;
        Self {
            client,
            settings,
            claims: Claims::default(),
            waiting: VecDeque::new(),
            runs: JoinSet::new(),
            run_keys: HashMap::new(),
            calls: JoinSet::new(),
            outcome_calls: 0,
            beat_calls: 0,
            link: None,
            connect_at: now(),
            backoff: Backoff::new(STREAMS),
            by_claim_due,
            contract_is_known: false,
            failure: None,
            stopping: None,
        }
    }

    /// Works until it is told to stop, and has stopped.
    pub(super) async fn drive(mut self, stop: CancellationToken) -> Result<Stopped, Error> {
        loop {
            let at = now();
            self.keep_time(at);
            self.start_waiting(at);
            let blocked = self.send(at);
            if self.is_done(at) {
                let stopped = Stopped { unanswered: self.claims.len() };
                return self.failure.map_or(Ok(stopped), Err);
            }
            let wake_at = self.wake_at(at);
            let Self { link, runs, calls, stopping, .. } = &mut self;
            tokio::select! {
                event = next_event(link) => self.on_event(event),
                Some(run) = runs.join_next_with_id() => self.on_ended(run),
                Some(call) = calls.join_next() => self.on_answered(call),
                () = room(blocked) => {}
                () = stop.cancelled(), if stopping.is_none() => self.begin_stop(),
                () = tokio::time::sleep_until(wake_at) => {}
            }
            self.take_what_is_there();
        }
    }

    /// Takes what came meanwhile, so that it goes out together.
    fn take_what_is_there(&mut self) {
        while let Some(event) = self.link.as_mut().and_then(Link::try_next) {
            self.on_event(event);
        }
        while let Some(run) = self.runs.try_join_next_with_id() {
            self.on_ended(run);
        }
        while let Some(call) = self.calls.try_join_next() {
            self.on_answered(call);
        }
    }

    /// Does what its time has come for.
    fn keep_time(&mut self, at: Instant) {
        match &mut self.stopping {
            Some(stopping) if !stopping.handlers_stopped && stopping.grace <= at => {
                stopping.handlers_stopped = true;
                self.claims.stop_running(StopReason::Shutdown);
            }
            Some(stopping) if !stopping.released && stopping.release <= at => {
                stopping.released = true;
                self.claims.give_back_running(at);
            }
            None if self.link.is_none() && self.connect_at <= at => self.connect(),
            _ => {}
        }
    }

    fn connect(&mut self) {
        let rpc = self.client.rpc();
        self.link = Some(if self.by_claim_due {
            Link::claim_due(rpc, &self.settings, !self.contract_is_known)
        } else {
            Link::work(rpc, &self.settings, self.free(), !self.contract_is_known)
        });
    }

    /// Handlers that no claim needs.
    fn free(&self) -> usize {
        self.settings.concurrency.saturating_sub(self.claims.len())
    }

    fn wake_at(&self, at: Instant) -> Instant {
        // What is due by now and was not sent is held back by calls or a stream: their end wakes this.
        let mut wake_at = self.claims.next_after(at).unwrap_or(at + LONG);
        if self.link.is_none() && self.stopping.is_none() {
            wake_at = wake_at.min(self.connect_at);
        }
        if let Some(stopping) = &self.stopping {
            let ends = [stopping.grace, stopping.release, stopping.end];
            for end in ends.into_iter().chain(stopping.stream) {
                if end > at {
                    wake_at = wake_at.min(end);
                }
            }
        }
        wake_at
    }

    fn is_done(&mut self, at: Instant) -> bool {
        let Some(stopping) = &mut self.stopping else { return false };
        // A handler that ignores its stop holds nothing any more.
        let is_idle = self.claims.is_empty() && (self.runs.is_empty() || stopping.released);
        // Claims that were on their way come before a stream ends. A server that is out of reach
        // does not end it.
        stopping.stream = is_idle.then(|| stopping.stream.unwrap_or(at + STREAM_END));
        let stream_is_over = self.link.is_none() || stopping.stream.is_some_and(|end| end <= at);
        (is_idle && stream_is_over) || stopping.end <= at
    }

    fn begin_stop(&mut self) {
        let at = now();
        let grace = at + self.settings.grace;
        self.stopping = Some(Stopping {
            grace,
            handlers_stopped: false,
            release: grace + self.settings.cleanup.min(RELEASE_WITHIN),
            released: false,
            stream: None,
            end: grace + LAST_ANSWERS,
        });
        // What this stream brought already is given back with the rest.
        while let Some(event) = self.link.as_mut().and_then(Link::try_next) {
            self.on_event(event);
        }
        if !self.link.as_mut().is_some_and(Link::close) {
            self.link_ended();
        }
        for waiting in std::mem::take(&mut self.waiting) {
            self.give_back(waiting.arrival.key);
        }
    }

    fn give_back(&mut self, key: i64) {
        self.claims.end(key, Outcome::Snooze(Duration::ZERO), now());
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Message(message, arrived) => self.on_message(message, arrived),
            Event::Ended(error) => self.on_stream_ended(&error),
        }
    }

    fn on_message(&mut self, message: v1::WorkResponse, arrived: Instant) {
        self.backoff.reset();
        let Some(link) = &mut self.link else { return };
        link.is_up = true;
        self.contract_is_known = true;
        link.credits = link.credits.saturating_sub(message.tasks.len());
        if message.draining && !link.is_draining {
            tracing::info!("the server is draining");
            link.is_draining = true;
        }
        for ack in message.outcome_acks {
            let answer = resolved(ack.result);
            self.claims.outcome_answered(ack.seq, answer, arrived);
        }
        for ack in message.heartbeat_acks {
            self.claims.beat_answered(ack.seq, extended(ack.result), arrived);
        }
        for lost in &message.lost {
            self.claims.lost(lost);
        }
        for claim in message.tasks {
            self.on_claim(claim, arrived);
        }
    }

    fn on_claim(&mut self, claim: v1::ClaimedTask, arrived: Instant) {
        let arrival = match self.claims.arrive(claim, arrived) {
            Ok(arrival) => arrival,
            // Its lease will run out.
            Err(error) => return tracing::error!(%error, "a claim that cannot be read"),
        };
        if self.stopping.is_some() {
            return self.give_back(arrival.key);
        }
        let task = arrival.claim.task();
        let version = task.handler_version();
        match self.settings.handlers.route(task.handler_ref(), version, arrival.is_strict) {
            Route::To(handler) => self.waiting.push_back(Waiting { arrival, handler }),
            Route::VersionMismatch => {
                let version = version.unwrap_or_default();
                let message = format!("no handler {:?} of version {version:?}", task.handler_ref());
                self.dead_letter(&arrival, "rdq.VersionMismatch", message);
            }
            Route::Unroutable => {
                let message = format!("no handler {:?}", task.handler_ref());
                self.dead_letter(&arrival, "rdq.Unroutable", message);
            }
        }
    }

    fn dead_letter(&mut self, arrival: &Arrival, error_type: &str, message: String) {
        tracing::warn!(task = arrival.claim.id(), error_type, "{message}");
        let cause = Cause::new(error_type, message);
        self.claims.end(arrival.key, Outcome::Permanent(cause), now());
    }

    fn start_waiting(&mut self, at: Instant) {
        while self.runs.len() < self.settings.concurrency
            && let Some(Waiting { arrival, handler }) = self.waiting.pop_front()
        {
            // It may be lost by now, or its lease nearly over.
            if !self.claims.is_waiting(arrival.key) || !self.claims.start(arrival.key, at) {
                continue;
            }
            let run = Run {
                claim: arrival.claim,
                handler,
                mapper: self.settings.mapper.clone(),
                controls: arrival.controls,
                timeout: arrival.timeout,
                cleanup: self.settings.cleanup,
            };
            let id = self.runs.spawn(run.run()).id();
            self.run_keys.insert(id, arrival.key);
        }
    }

    fn on_ended(&mut self, run: Result<(task::Id, Ended), JoinError>) {
        let (id, ended) = match run {
            Ok(run) => run,
            // Nothing in a run panics that is not caught there, but what is dropped with a handler.
            Err(error) => {
                let id = error.id();
                let panic = error.try_into_panic().map(|panic| panicked(&*panic));
                let failed = panic.unwrap_or_else(|_| HandlerError::new("panic", "it was aborted"));
                (id, Ended::Returned(failed.into()))
            }
        };
        if let Some(key) = self.run_keys.remove(&id) {
            self.claims.ended(key, ended, now());
        }
    }

    fn on_stream_ended(&mut self, error: &Error) {
        self.link_ended();
        if self.stopping.is_some() {
            return;
        }
        if matches!(error, Error::OtherContractVersion(_)) {
            tracing::error!("the worker stops: {error}");
            self.failure = Some(error.clone());
            return self.begin_stop();
        }
        let may_fall_back = self.settings.receive == Receive::Auto && !self.by_claim_due;
        if error.code() == Code::Unimplemented && may_fall_back {
            tracing::warn!("the server does not know Work: going on with ClaimDue");
            self.by_claim_due = true;
            return;
        }
        let wait = self.backoff.next();
        let (code, reason) = (error.code(), error.reason());
        tracing::warn!(?code, reason, ?wait, "no stream, connecting again: {error}");
        self.connect_at = now() + wait;
    }

    fn link_ended(&mut self) {
        self.link = None;
        self.connect_at = now();
        self.claims.stream_ended(self.connect_at);
    }

    /// Sends what there is to send: on the stream, else by calls. If the stream has no room, its way
    /// out is the answer.
    fn send(&mut self, at: Instant) -> Option<mpsc::Sender<v1::WorkRequest>> {
        let Some(out) = self.link.as_ref().and_then(Link::out).cloned() else {
            self.send_calls(at);
            return None;
        };
        loop {
            let credits = self.grantable();
            let has_items = self.claims.has_outcomes(at) || self.claims.has_beats(at);
            if credits.is_none() && !has_items {
                return None;
            }
            match out.try_reserve() {
                Ok(permit) => permit.send(self.message(credits, at)),
                Err(mpsc::error::TrySendError::Full(())) => break,
                // Its end is about to be told.
                Err(mpsc::error::TrySendError::Closed(())) => return None,
            }
        }
        Some(out)
    }

    /// Credits that the open stream should have and has not. A server that drains gets none, but all
    /// else: it takes outcomes on a stream until it ends that, and may take no new connection.
    fn grantable(&self) -> Option<i32> {
        let link = self.link.as_ref().filter(|link| !link.is_draining)?;
        grant(self.free().saturating_sub(link.credits))
    }

    fn message(&mut self, credits: Option<i32>, at: Instant) -> v1::WorkRequest {
        if let (Some(link), Some(credits)) = (&mut self.link, credits) {
            link.credits += usize::try_from(credits).unwrap_or(0);
        }
        let outcomes = self.claims.take_outcomes(Via::Stream).into_iter();
        let heartbeats = self.claims.take_beats(at).into_iter();
        v1::WorkRequest {
            start: None,
            credits,
            outcomes: outcomes
                .map(|(seq, resolution)| v1::WorkOutcome { seq, resolution: Some(resolution) })
                .collect(),
            heartbeats: heartbeats
                .map(|(seq, extend)| v1::WorkHeartbeat { seq, extend: Some(extend) })
                .collect(),
        }
    }

    fn send_calls(&mut self, at: Instant) {
        while self.claims.has_beats(at) && self.beat_calls < CALLS_MAX {
            let (keys, leases): (Vec<_>, _) = self.claims.take_beats(at).into_iter().unzip();
            if keys.is_empty() {
                break;
            }
            self.beat_calls += 1;
            let mut rpc = self.client.rpc();
            self.calls.spawn(async move {
                let request = Try::ONLY.request(v1::ExtendLeasesRequest { leases });
                let answer = Try::ONLY.answer(rpc.tasks.extend_leases(request)).await;
                let results = answer.map(|it| it.into_inner().results.into_iter().map(Some));
                Answered::Beats(each(keys, results, extended))
            });
        }
        while self.claims.has_outcomes(at) && self.outcome_calls < CALLS_MAX {
            let taken = self.claims.take_outcomes(Via::Call);
            let (keys, resolutions): (Vec<_>, _) = taken.into_iter().unzip();
            if keys.is_empty() {
                break;
            }
            self.outcome_calls += 1;
            let mut rpc = self.client.rpc();
            self.calls.spawn(async move {
                let request = Try::ONLY.request(v1::ResolveBatchRequest { resolutions });
                let answer = Try::ONLY.answer(rpc.tasks.resolve_batch(request)).await;
                let refusal = answer.as_ref().err().filter(|error| error.is_about_the_request());
                // What was sent alone is what was refused.
                if let (Some(error), [key]) = (refusal, keys.as_slice()) {
                    let answers = vec![(*key, Err(error.clone()))];
                    return Answered::Outcomes { answers, refused: false };
                }
                let refused = refusal.is_some();
                let results = answer.map(|it| it.into_inner().results.into_iter().map(Some));
                Answered::Outcomes { answers: each(keys, results, resolved), refused }
            });
        }
    }

    fn on_answered(&mut self, call: Result<Answered, JoinError>) {
        let at = now();
        match call {
            Ok(Answered::Outcomes { answers, refused }) => {
                self.outcome_calls -= 1;
                for (key, answer) in answers {
                    if refused {
                        self.claims.send_alone(key);
                    }
                    self.claims.outcome_answered(key, answer, at);
                }
            }
            Ok(Answered::Beats(answers)) => {
                self.beat_calls -= 1;
                for (key, answer) in answers {
                    self.claims.beat_answered(key, answer, at);
                }
            }
            Err(error) => unreachable!("a call that is neither aborted nor panics: {error}"),
        }
    }
}

async fn next_event(link: &mut Option<Link>) -> Event {
    match link {
        Some(link) => link.next().await,
        None => std::future::pending().await,
    }
}

/// Waits for room on a stream that had none.
async fn room(blocked: Option<mpsc::Sender<v1::WorkRequest>>) {
    match blocked {
        Some(out) => drop(out.reserve().await),
        None => std::future::pending().await,
    }
}

/// The answers of a call, one for each of its items; the call's own error for all, if it failed.
fn each<R, T>(
    keys: Vec<i64>,
    results: Result<impl Iterator<Item = Option<R>>, Error>,
    read: fn(Option<R>) -> Result<T, Error>,
) -> Vec<(i64, Result<T, Error>)> {
    match results {
        Ok(mut results) => {
            keys.into_iter().map(|key| (key, read(results.next().flatten()))).collect()
        }
        Err(error) => {
            // Whatever the call failed by, the items of it were not refused.
            let error = Error::unanswered(&error);
            keys.into_iter().map(|key| (key, Err(error.clone()))).collect()
        }
    }
}

fn resolved(result: Option<v1::ResolveResult>) -> Result<v1::ResolvedClaim, Error> {
    match result.and_then(|result| result.outcome) {
        Some(resolve_result::Outcome::Resolved(claim)) => Ok(claim),
        Some(resolve_result::Outcome::Error(error)) => Err(error.into()),
        None => Err(Error::timed_out()),
    }
}

fn extended(result: Option<v1::ExtendLeaseResult>) -> Result<v1::ExtendLeaseResponse, Error> {
    match result.and_then(|result| result.outcome) {
        Some(extend_lease_result::Outcome::Extended(lease)) => Ok(lease),
        Some(extend_lease_result::Outcome::Error(error)) => Err(error.into()),
        None => Err(Error::timed_out()),
    }
}

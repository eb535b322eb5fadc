//! The ledger: a mutation is observed once, and its effects are there with its record or not at all.

use super::names::ENDS;
use crate::{Fixture, Random, given::*};
use bytes::Bytes;
use rdq_spi::{
    Applied, MutationScope, MutationStatus, NewMutation, Operation, Rejected, Result, Storage,
    StorageError,
};
use std::{collections::HashSet, sync::Arc, time::Duration};

pub(crate) async fn a_first_observation_is_recorded_with_its_effects<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let wares = Wares::prepare(&*store).await;
    let new = accepted(&some_scope(), "done");
    assert_eq!(mutation(&*other, &new.scope).await, None);

    let applied = observe(&*store, &new, wares.operations()).await.expect("the first");

    assert_eq!(applied.len(), 1 + wares.operations().len());
    assert_eq!(applied[0], Applied::Observed);
    assert_eq!(applied[4..6], [Applied::Notified, Applied::OffsetSaved(1)]);
    let recorded = mutation(&*other, &new.scope).await.expect("a record");
    assert_eq!(recorded.first, new);
    assert_eq!(recorded.answers, applied[1..]);
    wares.assert_written(&*other).await;
    assert_eq!(claim_one(&*other, &wares.queue, LONG_LEASE).await.task.id, wares.task);
}

pub(crate) async fn one_without_effects_is_recorded_too<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let new = accepted(&some_scope(), "");
    let applied = observe(&*store, &new, Vec::new()).await.expect("the first");
    assert_eq!(applied, [Applied::Observed]);
    let recorded = mutation(&*store, &new.scope).await.expect("a record");
    assert_eq!((recorded.first, recorded.answers), (new, Vec::new()));
}

pub(crate) async fn a_repetition_gets_the_record_and_changes_nothing<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let every_byte: Vec<u8> = (0..=255).collect();
    let first = accepted(&some_scope(), every_byte);
    let stream = some_stream();
    let effects = vec![Operation::Publish(event(&stream, "once"))];
    observe(&*store, &first, effects.clone()).await.expect("the first");
    let recorded = mutation(&*store, &first.scope).await.expect("a record");

    let wares = Wares::prepare(&*store).await;
    for store in [&store, &other] {
        // What the repetition would do or say now is not looked at.
        let again = NewMutation { response: "another".into(), ..first.clone() };
        for effects in [effects.clone(), wares.operations(), Vec::new()] {
            let found = observed_before(observe(&**store, &again, effects).await);
            assert_eq!(found, recorded);
            assert!(found.first.is_repeated_by(&again));
        }
        let now_rejected = NewMutation { status: MutationStatus::Rejected, ..first.clone() };
        assert_eq!(observed_before(observe(&**store, &now_rejected, Vec::new()).await), recorded);
    }

    wares.assert_untouched(&*other).await;
    assert_eq!(texts(&read_all(&*other, &stream).await), ["once"]);
    assert_eq!(mutation(&*other, &first.scope).await, Some(recorded));
}

pub(crate) async fn whatever_differs_gets_the_record_and_changes_nothing<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let first = accepted(&some_scope(), "first");
    observe(&*store, &first, Vec::new()).await.expect("the first");
    let recorded = mutation(&*store, &first.scope).await.expect("a record");
    let wares = Wares::prepare(&*store).await;
    let mut fingerprint = first.fingerprint;
    fingerprint[31] ^= 1;
    for other in [
        NewMutation { kind: kind("Order"), ..first.clone() },
        NewMutation { eligibility_claim: Bytes::new(), ..first.clone() },
        NewMutation { eligibility_claim: "generation 8".into(), ..first.clone() },
        NewMutation { fingerprint, ..first.clone() },
    ] {
        let found = observed_before(observe(&*store, &other, wares.operations()).await);
        assert_eq!(found, recorded);
        assert!(!found.first.is_repeated_by(&other), "{other:?}");
        wares.assert_untouched(&*store).await;
        assert_eq!(mutation(&*store, &first.scope).await.as_ref(), Some(&recorded));
    }
}

pub(crate) async fn a_rejected_one_is_recorded_and_repeated<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let new = rejected(&some_scope(), "no");
    observe(&*store, &new, Vec::new()).await.expect("the first");
    let recorded = mutation(&*store, &new.scope).await.expect("a record");
    assert_eq!(recorded.first, new);

    let wares = Wares::prepare(&*store).await;
    let now_accepted = accepted(&new.scope, "yes");
    let found = observed_before(observe(&*store, &now_accepted, wares.operations()).await);

    assert_eq!(found, recorded);
    assert!(found.first.is_repeated_by(&now_accepted));
    wares.assert_untouched(&*store).await;
}

pub(crate) async fn a_rejected_one_has_no_effects<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let wares = Wares::prepare(&*store).await;
    let new = rejected(&some_scope(), "no");
    let answer = observe(&*store, &new, wares.operations()).await;
    assert!(is_refused_at(&answer, 0), "{answer:?}");
    wares.assert_untouched(&*store).await;
    assert_eq!(mutation(&*store, &new.scope).await, None);
}

pub(crate) async fn an_observation_comes_first<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let wares = Wares::prepare(&*store).await;
    let (one, two) = (accepted(&some_scope(), "one"), accepted(&some_scope(), "two"));
    let mut late = wares.operations();
    late.insert(2, Operation::Observe(one.clone()));
    let twice = observing(&one, vec![Operation::Observe(two.clone())]);
    for (operations, place) in [(late, 2), (twice, 1)] {
        let answer = commit(&*store, operations).await;
        assert!(is_refused_at(&answer, place), "{answer:?}");
        wares.assert_untouched(&*store).await;
        assert_eq!(mutation(&*store, &one.scope).await, None);
        assert_eq!(mutation(&*store, &two.scope).await, None);
    }
}

fn is_refused_at(answer: &Result<Vec<Applied>, Rejected>, place: usize) -> bool {
    let Err(Rejected { index: Some(index), error: StorageError::Refused { .. } }) = answer else {
        return false;
    };
    *index == place
}

pub(crate) async fn an_operation_that_fails_leaves_no_record<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let wares = Wares::prepare(&*store).await;
    let new = accepted(&some_scope(), "done");
    let count = wares.operations().len();
    for place in [0, count / 2, count] {
        let mut effects = wares.operations();
        effects.insert(place, Operation::CompareAndSet(set(&some_key(), 7, "late")));
        let failure = observe(&*store, &new, effects).await.expect_err("a failure");
        assert_eq!(failure.index, Some(1 + place), "{failure:?}");
        assert!(is_conflict(&Err::<(), _>(failure.error)));
        wares.assert_untouched(&*store).await;
        assert_eq!(mutation(&*store, &new.scope).await, None);
    }
    observe(&*store, &new, wares.operations()).await.expect("without it this is the first");
    wares.assert_written(&*store).await;
}

/// Observes through both handles at once, each as often as contention is in the way.
async fn observe_at_once(
    stores: &[Arc<dyn Storage>; 2],
    observations: Vec<(NewMutation, Vec<Operation>)>,
) -> Vec<Result<Vec<Applied>, Rejected>> {
    let calls: Vec<_> = observations
        .into_iter()
        .enumerate()
        .map(|(number, (mutation, effects))| {
            let store = stores[number % 2].clone();
            tokio::spawn(async move {
                loop {
                    match observe(&*store, &mutation, effects.clone()).await {
                        Err(it) if matches!(it.error, StorageError::Contention { .. }) => {}
                        answer => return answer,
                    }
                }
            })
        })
        .collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.expect("an observation"));
    }
    answers
}

pub(crate) async fn of_a_hundred_concurrent_firsts_one_is_first<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let (stream, record) = (some_stream(), some_key());
    for round in 0..2 {
        let scope = some_scope();
        let observations = (0..100).map(|number| {
            let text = format!("{round}/{number}");
            let effects = vec![
                Operation::Publish(event(&stream, text.clone())),
                Operation::Enqueue(Draft::of(&name(record.as_str())).build()),
            ];
            (accepted(&scope, text), effects)
        });

        let answers = observe_at_once(&stores, observations.collect()).await;

        let recorded = mutation(&*stores[0], &scope).await.expect("a record");
        let (firsts, others): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        assert_eq!(firsts.len(), 1, "{firsts:?}");
        for other in others {
            assert_eq!(observed_before(other), recorded, "they see what the first one said");
        }
        let events = texts(&read_all(&*stores[1], &stream).await);
        assert_eq!(events.len(), round + 1, "one effect a round: {events:?}");
        assert_eq!(events[round].as_bytes(), recorded.first.response);
    }
    let tasks = claim(&*stores[0], &name(record.as_str()), 10, LONG_LEASE).await;
    assert_eq!(tasks.len(), 2, "one task a round");
}

pub(crate) async fn one_that_fails_leaves_the_place_to_another<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let (stream, scope) = (some_stream(), some_scope());
    let observations = (0..30).map(|number| {
        let text = number.to_string();
        let mut effects = vec![Operation::Publish(event(&stream, text.clone()))];
        if number % 3 != 2 {
            effects.push(Operation::Cancel(some_id()));
        }
        (accepted(&scope, text), effects)
    });

    let answers = observe_at_once(&stores, observations.collect()).await;

    let recorded = mutation(&*stores[1], &scope).await.expect("a record");
    let firsts = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(firsts, 1, "{answers:?}");
    for (number, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(_) => assert_eq!(recorded.first.response, number.to_string()),
            Err(Rejected { index: Some(2), error: StorageError::NotFound { .. } }) => {
                assert_ne!(number % 3, 2, "it cancels nothing");
            }
            other => assert_eq!(observed_before(other), recorded),
        }
    }
    let events = texts(&read_all(&*stores[0], &stream).await);
    assert_eq!(events.len(), 1, "nothing of those that failed: {events:?}");
    assert_eq!(events[0].as_bytes(), recorded.first.response);
}

pub(crate) async fn dropped_calls_leave_record_and_effects_or_neither<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let (queue, stream) = (some_queue(), some_stream());
    let callers: Vec<_> = (0..4_u64)
        .map(|seed| {
            let store = stores[usize::from(seed % 2 == 0)].clone();
            let (queue, stream) = (queue.clone(), stream.clone());
            tokio::spawn(async move {
                let mut random = Random::seeded(seed);
                let mut sent = Vec::new();
                for _ in 0..12 {
                    let (scope, draft) = (some_scope(), Draft::of(&queue).build());
                    let effects = vec![
                        Operation::Publish(event(&stream, draft.id.as_str().to_owned())),
                        Operation::Enqueue(draft.clone()),
                    ];
                    let new = accepted(&scope, draft.id.as_str().to_owned());
                    let calling = observe(&*store, &new, effects.clone());
                    // Some go away as soon as they have asked.
                    let micros = if random.percent(25) { 0 } else { random.below(3000) };
                    let wait = Duration::from_micros(micros as u64);
                    _ = tokio::time::timeout(wait, calling).await;
                    sent.push((new, effects, draft.id));
                }
                sent
            })
        })
        .collect();
    let mut sent = Vec::new();
    for caller in callers {
        sent.extend(caller.await.expect("a caller"));
    }
    // Who lost the answer calls again: whatever became of the first call, it happens once.
    for (new, effects, task) in sent {
        let answer = loop {
            match observe(&*stores[0], &new, effects.clone()).await {
                Err(it) if matches!(it.error, StorageError::Contention { .. }) => {}
                answer => break answer,
            }
        };
        let recorded = mutation(&*stores[1], &new.scope).await.expect("a record");
        if answer.is_err() {
            assert_eq!(observed_before(answer), recorded);
        }
        assert_eq!(get(&*stores[1], &task).await.queue, queue);
        let events = texts(&read_all(&*stores[1], &stream).await);
        let times = events.iter().filter(|text| *text == task.as_str()).count();
        assert_eq!(times, 1, "{task} and its event");
    }
}

pub(crate) async fn what_is_recorded_comes_back_exactly<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let every_byte: Vec<u8> = (0..=255).collect();
    let longest = "é".repeat(120);
    let unique = format!("{:016x}", Random::any_seed());
    let plain = accepted(&some_scope(), "plain");
    let scopes = [some_scope(), scope(&longest, &longest, &format!("{}{unique}", "k".repeat(224)))];
    for scope in scopes {
        for (place, new) in [
            NewMutation {
                response: Bytes::new(),
                eligibility_claim: Bytes::new(),
                ..plain.clone()
            },
            NewMutation {
                response: every_byte.clone().into(),
                fingerprint: [0; 32],
                ..plain.clone()
            },
            NewMutation { eligibility_claim: every_byte.clone().into(), ..plain.clone() },
            NewMutation { fingerprint: [0xff; 32], response: "\0".into(), ..plain.clone() },
            NewMutation { response: vec![0xab; 300_000].into(), ..plain.clone() },
            NewMutation { kind: kind(&longest), status: MutationStatus::Rejected, ..plain.clone() },
        ]
        .into_iter()
        .enumerate()
        {
            let operation = rdq_spi::OperationName::stored(format!("{place}{}", &longest[..200]));
            let new = NewMutation { scope: MutationScope { operation, ..scope.clone() }, ..new };
            observe(&*store, &new, Vec::new()).await.expect("the first");
            let recorded = mutation(&*other, &new.scope).await.expect("a record");
            assert_eq!(recorded.first, new);
            assert_eq!(observed_before(observe(&*other, &new, Vec::new()).await), recorded);
        }
    }
}

pub(crate) async fn scopes_that_look_alike_are_apart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let root = format!("{:016x}", Random::any_seed());
    let ends = ENDS.iter().flat_map(|end| {
        let end = format!("{root}{end}");
        [scope(&end, &root, &root), scope(&root, &end, &root), scope(&root, &root, &end)]
    });
    let mut scopes: Vec<_> = ends.collect();
    // The same text, cut elsewhere.
    for (subject, operation, key) in
        [("a", "bc", "d"), ("ab", "c", "d"), ("a", "b", "cd"), ("a/b", "c", "d"), ("a", "b/c", "d")]
    {
        scopes.push(scope(&format!("{root}{subject}"), operation, key));
    }
    assert_eq!(scopes.iter().collect::<HashSet<_>>().len(), scopes.len());
    for (number, scope) in scopes.iter().enumerate() {
        let new = accepted(scope, number.to_string());
        observe(&*store, &new, Vec::new()).await.expect("each is the first of its own");
    }
    for (number, scope) in scopes.iter().enumerate() {
        let recorded = mutation(&*store, scope).await.expect("a record");
        assert_eq!(recorded.first, accepted(scope, number.to_string()));
    }
    let folded = scope(&root, &root, &root);
    assert_eq!(mutation(&*store, &folded).await, None);
}

pub(crate) async fn a_prune_removes_what_is_older_and_nothing_else<F: Fixture>(fixture: F) {
    const AGE: Duration = Duration::from_millis(400);
    let store = fixture.open().await;
    // A round in which too much time passed proves nothing. The storage's clock says so.
    for _ in 0..20 {
        let [old, young, late] = [(); 3].map(|()| accepted(&some_scope(), "x"));
        observe(&*store, &old, Vec::new()).await.expect("the first");
        lapse(SHORT_LEASE).await;
        assert_eq!(prune_all(&*store, Duration::from_secs(3600), 10).await, 0, "nothing is old");
        lapse(AGE).await;
        observe(&*store, &young, Vec::new()).await.expect("the first");
        let observed_at = mutation(&*store, &young.scope).await.expect("a record").observed_at;
        lapse(SHORT_LEASE).await;

        let count = prune_all(&*store, AGE, 10).await;

        assert_eq!(mutation(&*store, &old.scope).await, None);
        let is_left = mutation(&*store, &young.scope).await.is_some();
        observe(&*store, &late, Vec::new()).await.expect("the first");
        let now = mutation(&*store, &late.scope).await.expect("a record").observed_at;
        if is_left || now.since(observed_at) <= AGE {
            assert!(is_left, "it is younger than {AGE:?}");
            assert_eq!(count, 1);
            return;
        }
        lapse(AGE).await;
        prune_all(&*store, AGE, 10).await;
    }
    panic!("no round was quick enough");
}

pub(crate) async fn a_prune_goes_in_bounded_steps_the_oldest_first<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let mutations = [(); 5].map(|()| accepted(&some_scope(), "x"));
    for mutation in &mutations {
        observe(&*store, mutation, Vec::new()).await.expect("the first");
        // Each is older than the next by more than the clock's tick.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    lapse(SHORT_LEASE).await;
    for left in [3, 1] {
        let params = rdq_spi::PruneParams { older_than: SHORT_LEASE, limit: 2 };
        let step = ledger(&*store).prune(params).await.expect("prune");
        assert_eq!((step.count, step.more), (2, true), "{left} are left");
        for (place, new) in mutations.iter().enumerate() {
            let is_left = mutation(&*store, &new.scope).await.is_some();
            assert_eq!(is_left, place >= 5 - left, "{place} of 5, {left} are left");
        }
    }
    assert_eq!(prune_all(&*store, SHORT_LEASE, 2).await, 1);
    assert_eq!(prune_all(&*store, SHORT_LEASE, 2).await, 0);
}

pub(crate) async fn a_scope_whose_record_went_is_first_again<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (scope, stream) = (some_scope(), some_stream());
    let effect = |text: &'static str| vec![Operation::Publish(event(&stream, text))];
    observe(&*store, &accepted(&scope, "one"), effect("one")).await.expect("the first");
    lapse(SHORT_LEASE).await;
    prune_all(&*other, SHORT_LEASE, 10).await;

    let new = NewMutation { fingerprint: [9; 32], ..accepted(&scope, "two") };
    observe(&*store, &new, effect("two")).await.expect("the first again");

    assert_eq!(mutation(&*other, &scope).await.expect("a record").first, new);
    assert_eq!(texts(&read_all(&*other, &stream).await), ["one", "two"]);
}

pub(crate) async fn what_was_observed_survives_a_restart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let wares = Wares::prepare(&*store).await;
    let (new, no) = (accepted(&some_scope(), "yes"), rejected(&some_scope(), "no"));
    observe(&*store, &new, wares.operations()).await.expect("the first");
    observe(&*store, &no, Vec::new()).await.expect("the first");
    let before = [mutation(&*store, &new.scope).await, mutation(&*store, &no.scope).await];

    store.close().await;
    drop(store);
    fixture.restart().await;
    let store = fixture.open().await;

    let after = [mutation(&*store, &new.scope).await, mutation(&*store, &no.scope).await];
    assert_eq!(after, before);
    let again = observe(&*store, &new, wares.operations()).await;
    assert_eq!(Some(observed_before(again)), before[0]);
    wares.assert_written(&*store).await;
}

pub(crate) async fn it_is_part_of_its_transaction<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (new, stream, record) = (accepted(&some_scope(), "done"), some_stream(), some_key());
    let publish = |text: &'static str| Operation::Publish(event(&stream, text));
    let mut undone = begin(&*store).await;
    undone.apply(observing(&new, vec![publish("never")])).await.expect("apply");
    undone.rollback().await.expect("rollback");
    assert_eq!(mutation(&*other, &new.scope).await, None);

    let mut transaction = begin(&*store).await;
    transaction.apply(vec![publish("before")]).await.expect("apply");
    let set = Operation::CompareAndSet(set(&record, 0, "x"));
    let applied = transaction.apply(observing(&new, vec![publish("with"), set])).await;
    let applied = applied.expect("apply");
    transaction.apply(vec![publish("after")]).await.expect("apply");
    assert_eq!(mutation(&*other, &new.scope).await, None, "nobody sees it yet");
    transaction.commit().await.expect("commit");

    assert_eq!((applied.len(), applied[0]), (3, Applied::Observed));
    let recorded = mutation(&*other, &new.scope).await.expect("a record");
    assert_eq!((&recorded.first, &recorded.answers[..]), (&new, &applied[1..]));
    assert_eq!(texts(&read_all(&*other, &stream).await), ["before", "with", "after"]);
}

pub(crate) async fn a_repetition_leaves_its_transaction_as_it_was<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (new, stream) = (accepted(&some_scope(), "done"), some_stream());
    let publish = |text: &'static str| Operation::Publish(event(&stream, text));
    observe(&*store, &new, vec![publish("once")]).await.expect("the first");
    let recorded = mutation(&*store, &new.scope).await.expect("a record");

    let mut transaction = begin(&*store).await;
    transaction.apply(vec![publish("before")]).await.expect("apply");
    let again = transaction.apply(observing(&new, vec![publish("never")])).await;
    assert_eq!(observed_before(again), recorded);
    let late = transaction.apply(vec![publish("never"), Operation::Observe(new.clone())]).await;
    assert!(is_refused_at(&late, 1), "{late:?}");
    transaction.apply(vec![publish("after")]).await.expect("apply");
    transaction.commit().await.expect("commit");

    assert_eq!(texts(&read_all(&*store, &stream).await), ["once", "before", "after"]);
    assert_eq!(mutation(&*store, &new.scope).await, Some(recorded));
}

pub(crate) async fn of_two_transactions_of_a_scope_one_commits<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let record = some_key();
    let scope = some_scope();
    let operations = |text: &'static str, record: &rdq_spi::RecordName| {
        observing(&accepted(&scope, text), vec![Operation::CompareAndSet(set(record, 0, text))])
    };
    let mut first = begin(&*store).await;
    first.apply(operations("first", &record)).await.expect("apply");
    let mut second = begin(&*other).await;
    let losing = tokio::spawn({
        let operations = operations("second", &record);
        async move {
            match second.apply(operations).await {
                Ok(_) => second.commit().await,
                Err(rejected) => Err(rejected.error),
            }
        }
    });
    // The second may wait for the first one's end, or not; neither order makes both win.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (first, second) = (first.commit().await, losing.await.expect("the second"));

    assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
    let winner = if first.is_ok() { "first" } else { "second" };
    let recorded = mutation(&*store, &scope).await.expect("a record");
    assert_eq!(recorded.first.response, winner);
    assert_eq!(get_record(&*store, &record).await.expect("there").value, winner);
    match first.and(second) {
        Err(StorageError::MutationObserved { mutation }) => assert_eq!(*mutation, recorded),
        Err(StorageError::Contention { .. }) => {}
        other => panic!("{other:?}"),
    }
}

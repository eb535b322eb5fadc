//! Mutations.

use super::*;
use bytes::Bytes;
use v1::{MutationDisposition as Disposition, MutationStatus};

/// A scope that names one mutation of these tests.
fn scope(key: &str) -> v1::MutationScope {
    v1::MutationScope { subject: "me".into(), operation: "transfer".into(), key: key.into() }
}

/// An accepted mutation with these effects.
fn execute(key: &str, response: &str, effects: Vec<Op>) -> v1::ExecuteRequest {
    v1::ExecuteRequest {
        scope: Some(scope(key)),
        kind: "order".into(),
        eligibility_claim: "generation 7".into(),
        request_fingerprint: vec![7; 32].into(),
        operations: commit(effects).operations,
        status: MutationStatus::Accepted.into(),
        response: response.to_owned().into(),
    }
}

type Told = (Disposition, MutationStatus, Bytes);

fn told(response: &v1::ExecuteResponse) -> Told {
    (response.disposition(), response.status(), response.response.clone())
}

impl Clients {
    async fn execute(&mut self, request: v1::ExecuteRequest) -> Result<Told, Status> {
        Ok(told(self.ledger.execute(request).await?.get_ref()))
    }

    async fn mutation(&mut self, key: &str) -> Result<v1::Mutation, Status> {
        let request = v1::GetMutationRequest { scope: Some(scope(key)) };
        Ok(self.ledger.get_mutation(request).await?.into_inner().mutation.unwrap())
    }
}

#[tokio::test]
async fn a_mutation_is_executed_once_and_replayed() {
    let mut clients = clients().await;
    let missing = clients.mutation("k").await.unwrap_err();
    assert_eq!((missing.code(), reason(&missing)), (Code::NotFound, "NOT_FOUND".into()));
    assert_eq!(metadata(&missing, "subject"), "me");
    assert_eq!(metadata(&missing, "operation"), "transfer");
    assert_eq!(metadata(&missing, "key"), "k");

    let effects = || {
        let task = v1::EnqueueRequest { task: encoded(&task("new", "q")) };
        vec![Op::Publish(publish("s", "once")), Op::Enqueue(task)]
    };
    let first = clients.ledger.execute(execute("k", "done\0", effects())).await.unwrap();
    let first = first.into_inner();
    assert_eq!(told(&first), (Disposition::First, MutationStatus::Accepted, "done\0".into()));
    let results: Vec<_> = first.results.into_iter().map(|it| it.result.unwrap()).collect();
    let [Done::Publish(published), Done::Enqueue(enqueued)] = &results[..] else {
        panic!("{results:?}");
    };
    assert_eq!((enqueued.id.as_str(), enqueued.created), ("new", true));
    assert!(published.offset > 0);

    // What was decided, answered and done first stands.
    let again = v1::ExecuteRequest {
        status: MutationStatus::Rejected.into(),
        ..execute("k", "other", vec![Op::Publish(publish("s", "twice"))])
    };
    for request in [execute("k", "done\0", effects()), execute("k", "", vec![]), again] {
        let response = clients.ledger.execute(request).await.unwrap().into_inner();
        let expected = (Disposition::Replay, MutationStatus::Accepted, "done\0".into());
        assert_eq!(told(&response), expected);
        assert_eq!(response.results, []);
    }
    assert_eq!(clients.read_all("s").await, ["once"]);
    let mutation = clients.mutation("k").await.unwrap();
    assert_eq!(mutation.scope, Some(scope("k")));
    assert_eq!((mutation.kind.as_str(), mutation.status()), ("order", MutationStatus::Accepted));
    assert_eq!(mutation.eligibility_claim, "generation 7");
    assert_eq!(mutation.request_fingerprint, vec![7; 32]);
    assert_eq!(mutation.response, "done\0");
    assert!(mutation.observed_at.is_some());
}

#[tokio::test]
async fn whatever_differs_is_a_conflict_and_changes_nothing() {
    let mut clients = clients().await;
    clients.execute(execute("k", "done", vec![])).await.unwrap();
    let before = clients.mutation("k").await.unwrap();
    let other = || execute("k", "other", vec![Op::Publish(publish("s", "never"))]);
    for request in [
        v1::ExecuteRequest { kind: "Order".into(), ..other() },
        v1::ExecuteRequest { eligibility_claim: Bytes::new(), ..other() },
        v1::ExecuteRequest { request_fingerprint: vec![8; 32].into(), ..other() },
    ] {
        let told = clients.execute(request).await.unwrap();
        assert_eq!(told, (Disposition::Conflict, MutationStatus::Rejected, Bytes::new()));
    }
    assert!(clients.read_all("s").await.is_empty());
    assert_eq!(clients.mutation("k").await.unwrap(), before);
}

#[tokio::test]
async fn a_rejected_one_is_recorded_and_applies_nothing() {
    let mut clients = clients().await;
    let rejected = || v1::ExecuteRequest {
        status: MutationStatus::Rejected.into(),
        ..execute("k", "no funds", vec![Op::Publish(publish("s", "never"))])
    };
    let first = clients.ledger.execute(rejected()).await.unwrap().into_inner();
    assert_eq!(told(&first), (Disposition::First, MutationStatus::Rejected, "no funds".into()));
    assert_eq!(first.results, []);
    let accepted = execute("k", "yes", vec![Op::Publish(publish("s", "never"))]);
    for request in [rejected(), accepted] {
        let told = clients.execute(request).await.unwrap();
        assert_eq!(told, (Disposition::Replay, MutationStatus::Rejected, "no funds".into()));
    }
    assert!(clients.read_all("s").await.is_empty());
}

#[tokio::test]
async fn an_operation_that_fails_fails_the_call_and_records_nothing() {
    let mut clients = clients().await;
    let cancel = |id: &str| Op::Cancel(v1::CancelRequest { id: id.into() });
    let late =
        v1::CompareAndSetRequest { key: "r".into(), value: "v".into(), expected_revision: 9 };
    let expired = v1::DeleteRecordRequest { key: "r".into(), expected_revision: 0 };
    for (operation, expected) in [
        (cancel("missing"), "NOT_FOUND"),
        (Op::CompareAndSet(late), "CAS_CONFLICT"),
        (Op::DeleteRecord(expired), "INVALID_ARGUMENT"),
        (Op::Publish(publish("", "x")), "INVALID_NAME"),
    ] {
        let effects = vec![Op::Publish(publish("s", "never")), operation];
        let status = clients.execute(execute("k", "done", effects)).await.unwrap_err();
        assert_eq!(reason(&status), expected);
        assert_eq!(metadata(&status, "operation_index"), "1", "{status:?}");
        assert_eq!(clients.mutation("k").await.unwrap_err().code(), Code::NotFound);
    }
    assert!(clients.read_all("s").await.is_empty());
    let first = clients.execute(execute("k", "done", vec![])).await.unwrap();
    assert_eq!(first.0, Disposition::First);
}

/// After the first, what its operations were about is not as it was: whoever prepares them again
/// finds them refused, and it is a repetition all the same.
#[tokio::test]
async fn a_replay_does_not_depend_on_what_its_operations_would_do_now() {
    let mut clients = clients().await;
    for id in ["marked", "released"] {
        clients.outboxes.enqueue(message("o", id)).await.unwrap();
    }
    let (marked, released) = (clients.claim_one("o").await, clients.claim_one("o").await);
    clients.served.enqueue(&task("cancelled", "q")).await.unwrap();
    let effects = || {
        vec![
            Op::MarkProjected(v1::MarkProjectedRequest {
                id: marked.id.clone(),
                worker_id: "relay".into(),
                generation: marked.generation,
            }),
            Op::ReleaseWithError(v1::ReleaseWithErrorRequest {
                id: released.id.clone(),
                worker_id: "relay".into(),
                generation: released.generation,
                error: "no".into(),
                delay: None,
            }),
            Op::Cancel(v1::CancelRequest { id: "cancelled".into() }),
        ]
    };
    let first = clients.execute(execute("k", "done", effects())).await.unwrap();
    assert_eq!(first.0, Disposition::First);
    // Somebody else has the message by now.
    let taken = clients.claim_one("o").await;
    assert_eq!((taken.id, taken.last_error), (released.id.clone(), "no".to_owned()));

    let again = clients.execute(execute("k", "done", effects())).await.unwrap();
    assert_eq!(again, (Disposition::Replay, MutationStatus::Accepted, "done".into()));
    let other = v1::ExecuteRequest { kind: "other".into(), ..execute("k", "", effects()) };
    assert_eq!(clients.execute(other).await.unwrap().0, Disposition::Conflict);
    let elsewhere = clients.execute(execute("k2", "done", effects())).await.unwrap_err();
    assert_eq!(reason(&elsewhere), "OUTBOX_CLAIM_MISMATCH");
    assert_eq!(metadata(&elsewhere, "operation_index"), "1");
}

#[tokio::test]
async fn of_a_hundred_concurrent_calls_one_takes_effect() {
    let mut clients = clients().await;
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let mut ledger = clients.ledger.clone();
            let text = number.to_string();
            let effects = vec![Op::Publish(publish("s", text.clone()))];
            tokio::spawn(async move { ledger.execute(execute("k", &text, effects)).await })
        })
        .collect();
    let mut firsts = Vec::new();
    let mut responses = Vec::new();
    for call in calls {
        let (disposition, status, response) = told(call.await.unwrap().unwrap().get_ref());
        assert_eq!(status, MutationStatus::Accepted);
        if disposition == Disposition::First {
            firsts.push(response.clone());
        }
        responses.push(response);
    }
    assert_eq!(firsts.len(), 1, "{firsts:?}");
    assert!(responses.iter().all(|response| *response == firsts[0]));
    assert_eq!(clients.read_all("s").await, [String::from_utf8_lossy(&firsts[0])]);
}

#[tokio::test]
async fn requests_outside_the_contract_are_refused_and_record_nothing() {
    let mut clients = clients().await;
    let base = || execute("k", "done", vec![]);
    let in_scope = |change: fn(&mut v1::MutationScope, String), text: &str| {
        let mut scope = scope("k");
        change(&mut scope, text.to_owned());
        v1::ExecuteRequest { scope: Some(scope), ..base() }
    };
    let long = "n".repeat(241);
    let mut requests = Vec::new();
    for name in ["", "\u{a0}", "a\0b", "a\nb", &long] {
        let refused = |request, field: &'static str| (request, "INVALID_NAME", field);
        requests.extend([
            refused(in_scope(|it, text| it.subject = text, name), "scope.subject"),
            refused(in_scope(|it, text| it.operation = text, name), "scope.operation"),
            refused(in_scope(|it, text| it.key = text, name), "scope.key"),
            refused(v1::ExecuteRequest { kind: name.into(), ..base() }, "kind"),
        ]);
    }
    for len in [0, 31, 33, MIB] {
        let request_fingerprint = vec![7; len].into();
        let request = v1::ExecuteRequest { request_fingerprint, ..base() };
        requests.push((request, "INVALID_ARGUMENT", "request_fingerprint"));
    }
    for status in [0, 3, -1, i32::MAX] {
        requests.push((v1::ExecuteRequest { status, ..base() }, "INVALID_ARGUMENT", "status"));
    }
    let sized = |len: usize| Bytes::from(vec![1; len]);
    let unset = vec![v1::Operation { operation: None }];
    let many = vec![Op::Publish(publish("s", "never")); 1_001];
    requests.extend([
        (v1::ExecuteRequest { scope: None, ..base() }, "INVALID_ARGUMENT", "scope"),
        (
            v1::ExecuteRequest { operations: unset, ..base() },
            "INVALID_ARGUMENT",
            "operations[0].operation",
        ),
        (execute("k", "done", many), "INVALID_ARGUMENT", "operations"),
        (
            v1::ExecuteRequest { eligibility_claim: sized((64 << 10) + 1), ..base() },
            "PAYLOAD_TOO_LARGE",
            "eligibility_claim",
        ),
        (
            v1::ExecuteRequest { response: sized(MIB + 1), ..base() },
            "PAYLOAD_TOO_LARGE",
            "response",
        ),
    ]);
    for (request, expected, field) in requests {
        let status = clients.execute(request).await.unwrap_err();
        assert_eq!((status.code(), reason(&status)), (Code::InvalidArgument, expected.into()));
        assert_eq!(metadata(&status, "field"), field, "{status:?}");
    }
    let huge = v1::ExecuteRequest { response: sized(8 * MIB), ..base() };
    let status = clients.execute(huge).await.unwrap_err();
    assert_eq!(reason(&status), "MESSAGE_TOO_LARGE");
    assert_eq!(clients.mutation("k").await.unwrap_err().code(), Code::NotFound);
    assert!(clients.read_all("s").await.is_empty());

    let unset = clients.ledger.get_mutation(v1::GetMutationRequest { scope: None }).await;
    assert_eq!(metadata(&unset.unwrap_err(), "field"), "scope");
    let largest = v1::ExecuteRequest {
        eligibility_claim: sized(64 << 10),
        response: sized(MIB),
        ..execute("k", "", vec![Op::Publish(publish("s", "x")); 1_000])
    };
    assert_eq!(clients.execute(largest).await.unwrap().0, Disposition::First);
    assert_eq!(clients.mutation("k").await.unwrap().response.len(), MIB);
}

#[tokio::test]
async fn old_mutations_are_pruned_in_bounded_steps() {
    let mut clients = clients().await;
    for key in ["1", "2", "3"] {
        clients.execute(execute(key, "done", vec![])).await.unwrap();
    }
    let prune = |older_than: Option<prost_types::Duration>, limit| v1::PruneMutationsRequest {
        older_than,
        limit,
    };
    for older_than in [None, Some(seconds(0)), Some(seconds(-1))] {
        let status = clients.ledger.prune_mutations(prune(older_than, None)).await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_ARGUMENT");
        assert_eq!(metadata(&status, "field"), "older_than");
    }
    tokio::time::sleep(Duration::from_millis(30)).await;
    let nothing = v1::PruneMutationsResponse::default();
    for request in [
        prune(Some(seconds(3_600)), None),
        prune(Some(millis(1)), Some(0)),
        prune(Some(millis(1)), Some(-1)),
    ] {
        let response = clients.ledger.prune_mutations(request).await.unwrap().into_inner();
        assert_eq!(response, nothing);
    }
    let step = clients.ledger.prune_mutations(prune(Some(millis(1)), Some(2))).await.unwrap();
    assert_eq!(step.into_inner(), v1::PruneMutationsResponse { count: 2, more: true });
    let last = clients.ledger.prune_mutations(prune(Some(millis(1)), None)).await.unwrap();
    assert_eq!(last.into_inner(), v1::PruneMutationsResponse { count: 1, more: false });
    for key in ["1", "2", "3"] {
        assert_eq!(clients.mutation(key).await.unwrap_err().code(), Code::NotFound);
    }
    let again = clients.execute(execute("1", "again", vec![])).await.unwrap();
    assert_eq!(again, (Disposition::First, MutationStatus::Accepted, "again".into()));
}

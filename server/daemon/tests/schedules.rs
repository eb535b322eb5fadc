//! Schedules over the wire: their tasks come, they are listed, and what cannot be is refused.
#![allow(clippy::pedantic, clippy::unwrap_used, reason = "stories of calls, long by nature")]

mod support;

use prost_types::Duration;
use rdq_proto::v1::{self, schedule_service_client::ScheduleServiceClient};
use std::collections::{HashMap, HashSet};
use support::{Served, decoded, reason, seconds, serve};
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt as _;

type Client = ScheduleServiceClient<Channel>;

fn client(served: &Served) -> Client {
    ScheduleServiceClient::new(served.channel.clone())
}

fn schedule(name: &str, spec: &str) -> v1::Schedule {
    v1::Schedule {
        name: name.into(),
        spec: spec.into(),
        queue: "q".into(),
        handler_ref: "handler".into(),
        payload: "payload".into(),
        headers: [("mine".to_owned(), "yes".to_owned())].into(),
        priority: 4,
        max_attempts: Some(3),
        expires_in: Some(seconds(3_600)),
        ..Default::default()
    }
}

async fn put(
    client: &mut Client,
    schedule: v1::Schedule,
) -> Result<v1::PutScheduleResponse, Status> {
    let request = v1::PutScheduleRequest { schedule: Some(schedule) };
    client.put_schedule(request).await.map(tonic::Response::into_inner)
}

async fn list(
    client: &mut Client,
    page_size: Option<i32>,
    page_token: &str,
) -> Result<v1::ListSchedulesResponse, Status> {
    let request = v1::ListSchedulesRequest { page_size, page_token: page_token.into() };
    client.list_schedules(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_schedules_tasks_come_at_its_boundaries() {
    let mut served = serve().await;
    let mut client = client(&served);
    let sent = schedule("every second", "@every 1s");
    let answer = put(&mut client, sent.clone()).await.unwrap();
    assert!(answer.created);
    let stored = answer.schedule.unwrap();
    let v1::Schedule { next_boundary_at, last_boundary_at, created_at, .. } = stored.clone();
    assert_eq!(v1::Schedule { next_boundary_at, created_at, ..sent.clone() }, stored);
    assert_eq!(last_boundary_at, None);
    let (next, created) = (next_boundary_at.unwrap(), created_at.unwrap());
    assert_eq!((next.seconds, next.nanos), (created.seconds + 1, created.nanos));

    let mut tasks = Vec::new();
    while tasks.len() < 3 {
        let claims = served.claim("q", 10).await;
        tasks.extend(claims.into_iter().map(|claim| decoded(&claim.task)));
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let ids: HashSet<_> = tasks.iter().map(|task| &task.id).collect();
    assert_eq!(ids.len(), tasks.len());
    for (second, task) in (0..).zip(&tasks) {
        assert_eq!((task.queue.as_str(), task.handler_ref.as_str()), ("q", "handler"));
        assert_eq!((&task.payload[..], task.priority), (&b"payload"[..], 4));
        assert_eq!(task.max_attempts, Some(3));
        assert_eq!(task.headers["mine"], "yes");
        assert_eq!(task.headers["rdq.schedule"], "every second");
        let at: prost_types::Timestamp = task.headers["rdq.scheduled_for"].parse().unwrap();
        assert_eq!((at.seconds, at.nanos), (next.seconds + second, next.nanos));
        let end = task.expires_at.unwrap();
        assert_eq!((end.seconds, end.nanos), (at.seconds + 3_600, at.nanos));
        assert_eq!(served.get(&task.id).await.id, task.id);
    }
    let listed = list(&mut client, None, "").await.unwrap().schedules.remove(0);
    assert!(listed.last_boundary_at.unwrap().seconds >= next.seconds + 2);
    assert!(listed.next_boundary_at.unwrap().seconds > listed.last_boundary_at.unwrap().seconds);

    let name = "every second".to_owned();
    let pause = v1::PauseScheduleRequest { name: name.clone() };
    let paused = client.pause_schedule(pause).await.unwrap().into_inner().schedule.unwrap();
    assert!(paused.paused && paused.next_boundary_at.is_none());
    let resume = v1::ResumeScheduleRequest { name: name.clone() };
    let resumed = client.resume_schedule(resume).await.unwrap().into_inner().schedule.unwrap();
    assert!(!resumed.paused);
    let (last, next) = (resumed.last_boundary_at.unwrap(), resumed.next_boundary_at.unwrap());
    assert!(next.seconds > last.seconds);
    assert_eq!(next.nanos, created.nanos, "its boundaries stay where they were");
    for existed in [true, false] {
        let delete = v1::DeleteScheduleRequest { name: name.clone() };
        let answer = client.delete_schedule(delete).await.unwrap().into_inner();
        assert_eq!(answer.existed, existed);
    }
    assert!(list(&mut client, None, "").await.unwrap().schedules.is_empty());
}

#[tokio::test]
async fn schedules_are_listed_by_name_page_by_page() {
    let served = serve().await;
    let mut client = client(&served);
    for name in ["d", "b", "a", "c", "e"] {
        put(&mut client, schedule(name, "@daily")).await.unwrap();
    }
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let page = list(&mut client, Some(2), &token).await.unwrap();
        assert!(page.schedules.len() <= 2);
        names.extend(page.schedules.into_iter().map(|schedule| schedule.name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    for (page_size, count) in [(None, 5), (Some(0), 0), (Some(-1), 0), (Some(i32::MAX), 5)] {
        let page = list(&mut client, page_size, "").await.unwrap();
        assert_eq!(page.schedules.len(), count, "{page_size:?}");
    }
    let error = list(&mut client, None, "x").await.unwrap_err();
    assert_eq!(reason(&error), "INVALID_CURSOR");
    let queues = v1::ListQueuesRequest { page_size: Some(1), page_token: String::new() };
    for name in ["q1", "q2"] {
        let config = Some(v1::QueueConfig::default());
        let put = v1::PutQueueRequest { name: name.into(), config };
        served.queues.clone().put_queue(put).await.unwrap();
    }
    let other = served.queues.clone().list_queues(queues).await.unwrap().into_inner();
    let error = list(&mut client, None, &other.next_page_token).await.unwrap_err();
    assert_eq!(reason(&error), "CURSOR_BINDING_MISMATCH");
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_field_and_nothing_is_stored() {
    let served = serve().await;
    let mut client = client(&served);
    let base = || schedule("s", "@daily");
    let spec = |spec: &str| schedule("s", spec);
    let header = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
    for (schedule, expected, field) in [
        (v1::Schedule { name: String::new(), ..base() }, "INVALID_NAME", "schedule.name"),
        (v1::Schedule { name: "n".repeat(241), ..base() }, "INVALID_NAME", "schedule.name"),
        (v1::Schedule { name: "__rdq_x".into(), ..base() }, "RESERVED_NAME", "schedule.name"),
        (v1::Schedule { queue: " ".into(), ..base() }, "INVALID_NAME", "schedule.queue"),
        (
            v1::Schedule { queue: "__rdq_outbox:x".into(), ..base() },
            "RESERVED_NAME",
            "schedule.queue",
        ),
        (
            v1::Schedule { handler_ref: "a\0".into(), ..base() },
            "INVALID_NAME",
            "schedule.handler_ref",
        ),
        (
            v1::Schedule { handler_ref: "__rdq_".into(), ..base() },
            "RESERVED_NAME",
            "schedule.handler_ref",
        ),
        (spec(""), "INVALID_SPEC", "schedule.spec"),
        (spec("@every 0s"), "INVALID_SPEC", "schedule.spec"),
        (spec("0 * * * * *"), "INVALID_SPEC", "schedule.spec"),
        (spec("0 0 30 2 *"), "INVALID_SPEC", "schedule.spec"),
        (spec("@reboot"), "INVALID_SPEC", "schedule.spec"),
        (spec(&"9".repeat(1 << 20)), "INVALID_SPEC", "schedule.spec"),
        (v1::Schedule { time_zone: "Mars".into(), ..base() }, "INVALID_SPEC", "schedule.time_zone"),
        (
            v1::Schedule { max_attempts: Some(0), ..base() },
            "INVALID_ARGUMENT",
            "schedule.max_attempts",
        ),
        (
            v1::Schedule { max_attempts: Some(-1), ..base() },
            "INVALID_ARGUMENT",
            "schedule.max_attempts",
        ),
        (
            v1::Schedule { headers: header("rdq.x", ""), ..base() },
            "INVALID_ARGUMENT",
            "schedule.headers",
        ),
        (
            v1::Schedule { headers: header("", ""), ..base() },
            "INVALID_ARGUMENT",
            "schedule.headers",
        ),
        (
            v1::Schedule { headers: header("k", &"v".repeat(64 << 10)), ..base() },
            "PAYLOAD_TOO_LARGE",
            "schedule.headers",
        ),
        (
            v1::Schedule { payload: vec![0; (1 << 20) + 1].into(), ..base() },
            "PAYLOAD_TOO_LARGE",
            "schedule.payload",
        ),
        (
            v1::Schedule { expires_in: Some(Duration { seconds: 1, nanos: -1 }), ..base() },
            "INVALID_ARGUMENT",
            "schedule.expires_in",
        ),
    ] {
        let status = put(&mut client, schedule).await.expect_err(field);
        assert_eq!(reason(&status), expected, "{field}: {status:?}");
        assert_eq!(status.code(), Code::InvalidArgument, "{field}");
        let details = status.get_error_details();
        assert_eq!(details.error_info().unwrap().metadata["field"], field);
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, field);
    }
    let missing = client.put_schedule(v1::PutScheduleRequest { schedule: None }).await;
    assert_eq!(reason(&missing.unwrap_err()), "INVALID_ARGUMENT");
    for (name, expected) in [("", "INVALID_NAME"), ("__rdq_x", "RESERVED_NAME"), ("s", "NOT_FOUND")]
    {
        let pause = v1::PauseScheduleRequest { name: name.into() };
        let status = client.pause_schedule(pause).await.unwrap_err();
        assert_eq!(reason(&status), expected, "{name:?}");
        let resume = v1::ResumeScheduleRequest { name: name.into() };
        let status = client.resume_schedule(resume).await.unwrap_err();
        assert_eq!(reason(&status), expected, "{name:?}");
        if expected != "NOT_FOUND" {
            let delete = v1::DeleteScheduleRequest { name: name.into() };
            let status = client.delete_schedule(delete).await.unwrap_err();
            assert_eq!(reason(&status), expected, "{name:?}");
        }
    }
    assert!(list(&mut client, None, "").await.unwrap().schedules.is_empty());

    // As far as a boundary goes, these are good.
    for expires_in in [Some(seconds(0)), Some(seconds(-5)), None] {
        put(&mut client, v1::Schedule { expires_in, ..base() }).await.unwrap();
    }
    let zoned = v1::Schedule { time_zone: "Africa/Casablanca".into(), ..spec("*/5 1-5 * JAN mon") };
    assert!(!put(&mut client, zoned).await.unwrap().created);
}

#[tokio::test]
async fn a_storage_that_can_says_so() {
    let mut served = serve().await;
    let response = served.tasks.get_capabilities(v1::GetCapabilitiesRequest {}).await.unwrap();
    assert!(response.into_inner().capabilities.contains(&"schedules".to_owned()));
}

//! The producer's trace, and the handler's.

use crate::harness::{QUEUE, Server, until, until_status};
use opentelemetry::{
    Context, KeyValue, global,
    trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use rdq_client::{Claim, HandlerError, NewTask, RetryAfter, TaskStatus, Worker};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// Keeps what was exported.
#[derive(Debug, Clone, Default)]
struct Exported(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Exported {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(spans);
        Ok(())
    }
}

#[tokio::test]
async fn trace_context() {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    global::set_tracer_provider(provider.clone());
    let server = Server::start().await;
    let client = server.client().await;
    let within = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&within);
    let worker = Worker::builder(&client)
        .queue(QUEUE)
        .handler("traced", move |_: Claim| {
            let seen = Arc::clone(&seen);
            async move {
                tokio::task::yield_now().await;
                seen.lock().unwrap().push(Context::current().span().span_context().clone());
                Ok::<_, HandlerError>(())
            }
        })
        .handler("fails", |claim: Claim| async move {
            let error = HandlerError::new("mail", "to a@example.org");
            match claim.attempt_no() {
                1 => Err::<(), _>(RetryAfter(Duration::ZERO, error).into()),
                _ => Err(error),
            }
        })
        .build()
        .unwrap()
        .start();

    let context = Context::new().with_span(global::tracer("test").start("produce"));
    let producer = context.span().span_context().clone();
    let one = client.enqueue(NewTask::new(QUEUE, "traced")).with_context(context.clone()).await;
    let many = client.enqueue_many([NewTask::new(QUEUE, "traced")]).with_context(context).await;
    let own = "00-11111111111111111111111111111111-2222222222222222-01";
    let set = NewTask::new(QUEUE, "traced").header("traceparent", own);
    let set = client.enqueue(set).await.unwrap().id;
    let untraced = client.enqueue(NewTask::new(QUEUE, "traced")).await.unwrap().id;

    for id in [one.unwrap().id, many.into_iter().next().unwrap().unwrap().id] {
        let task = until_status(&client, &id, TaskStatus::Succeeded).await;
        let (trace, span) = (producer.trace_id(), producer.span_id());
        assert_eq!(task.header("traceparent"), Some(format!("00-{trace}-{span}-01").as_str()));
        let span = until("the handler's span is exported", async || find(&exported, &id)).await;
        assert_eq!(span.span_context.trace_id(), trace);
        assert_eq!((span.parent_span_id, span.span_kind), (producer.span_id(), SpanKind::Consumer));
        let attribute = |key: &str| {
            let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
            found.map(|attribute| attribute.value.to_string())
        };
        assert_eq!(attribute("rdq.queue").as_deref(), Some(QUEUE));
        assert_eq!(attribute("rdq.attempt").as_deref(), Some("1"));
        assert!(within.lock().unwrap().contains(&span.span_context), "the handler ran within it");
    }
    until_status(&client, &set, TaskStatus::Succeeded).await;
    let span = until("its span is exported", async || find(&exported, &set)).await;
    assert_eq!(span.span_context.trace_id().to_string(), "1".repeat(32));
    let task = until_status(&client, &untraced, TaskStatus::Succeeded).await;
    assert!(task.headers().is_empty(), "without a span nothing is added");
    // An attempt that failed is an error, without its message; one that is to run later is none.
    let failing = NewTask::new(QUEUE, "fails").max_attempts(2);
    let failing = client.enqueue(failing).await.unwrap().id;
    until_status(&client, &failing, TaskStatus::Dead).await;
    worker.stop().await.unwrap();
    let mut spans = exported.0.lock().unwrap().clone();
    spans.retain(|span| is_of(span, &failing));
    let statuses: Vec<_> = spans.iter().map(|span| span.status.clone()).collect();
    assert_eq!(statuses, [Status::Unset, Status::error("mail")]);
    assert!(!format!("{spans:?}").contains("example.org"), "{spans:?}");
    assert_eq!(find(&exported, &untraced).unwrap().status, Status::Unset);
}

fn find(exported: &Exported, task_id: &str) -> Option<SpanData> {
    exported.0.lock().unwrap().iter().find(|span| is_of(span, task_id)).cloned()
}

fn is_of(span: &SpanData, task_id: &str) -> bool {
    let is_named = |attribute: &KeyValue| attribute.value.to_string() == task_id;
    span.name == "rdq.handle" && span.attributes.iter().any(is_named)
}

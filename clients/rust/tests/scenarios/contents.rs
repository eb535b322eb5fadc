//! What a task carries comes back as it was.

use crate::harness::{QUEUE, Server, until_status};
use rdq_client::{
    Claim, Error, HandlerError, NewTask, Permanent, QueueConfig, Selector, TaskStatus, Worker,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

const TEXT: &str = "🚀 ñ مرحبا";

fn every_byte() -> Vec<u8> {
    (0..=255).collect()
}

#[tokio::test]
async fn unicode_and_binary() {
    let server = Server::start().await;
    let client = server.client().await;
    let queue = format!("{TEXT}-queue");
    let handler = format!("{TEXT}-handler");
    let claims = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&claims);
    let worker = Worker::builder(&client)
        .queue(&queue)
        .worker_id(TEXT)
        .handler(&handler, move |claim: Claim| {
            seen.lock().unwrap().push(claim.clone());
            async move {
                match claim.headers().get("fail") {
                    Some(text) => Err(Permanent(HandlerError::new(text, text))),
                    None => Ok(claim.payload().clone()),
                }
            }
        })
        .build()
        .unwrap()
        .start();
    let headers = HashMap::from([
        (TEXT.to_owned(), TEXT.to_owned()),
        ("empty".to_owned(), String::new()),
        ("lines".to_owned(), "one\ntwo\t\u{7f}".to_owned()),
    ]);
    let task = NewTask::new(&queue, &handler).id(TEXT).payload(every_byte());
    let task = task.headers(headers.clone()).content_type(TEXT).handler_version(TEXT);
    assert_eq!(client.enqueue(task).await.unwrap().id, TEXT);
    let task = until_status(&client, TEXT, TaskStatus::Succeeded).await;
    assert_eq!(&task.result()[..], every_byte());
    for task in [&task, claims.lock().unwrap()[0].task()] {
        assert_eq!((task.id(), task.queue(), task.handler_ref()), (TEXT, &*queue, &*handler));
        assert_eq!((&task.payload()[..], task.headers()), (&every_byte()[..], &headers));
        assert_eq!((task.content_type(), task.handler_version()), (TEXT, Some(TEXT)));
    }
    assert_eq!(task.attempts()[0].worker_id, TEXT);

    let id = client.enqueue(NewTask::new(&queue, &handler).header("fail", TEXT)).await.unwrap().id;
    let task = until_status(&client, &id, TaskStatus::Dead).await;
    let error = task.attempts()[0].error.as_ref().unwrap();
    assert_eq!((error.error_type.as_str(), error.message.as_str()), (TEXT, TEXT));
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn huge_payload() {
    const LARGEST: usize = 2 << 20;
    let server = Server::start().await;
    let client = server.client().await;
    let mut config = QueueConfig::default();
    config.max_payload_bytes = Some(LARGEST as u64);
    client.put_queue(QUEUE, config).await.unwrap();
    let worker = Worker::builder(&client)
        .queue(QUEUE)
        .handler("sizes", |claim: Claim| async move {
            let sum: u64 = claim.payload().iter().map(|byte| u64::from(*byte)).sum();
            Ok::<_, HandlerError>(format!("{} {sum}", claim.payload().len()))
        })
        .build()
        .unwrap()
        .start();
    let payload = |byte: u8| vec![byte; LARGEST];
    let answers = client
        .enqueue_many((1..=6).map(|byte| NewTask::new(QUEUE, "sizes").payload(payload(byte))));
    for (answer, byte) in answers.await.into_iter().zip(1_u64..) {
        let task = until_status(&client, &answer.unwrap().id, TaskStatus::Succeeded).await;
        assert_eq!(task.result(), &format!("{LARGEST} {}", byte * LARGEST as u64));
    }
    worker.stop().await.unwrap();

    let mut over = payload(1);
    over.push(1);
    let many = client.enqueue_many([NewTask::new(QUEUE, "sizes").payload(over.clone())]).await;
    let one = client.enqueue(NewTask::new(QUEUE, "sizes").payload(over)).await;
    for answer in [one, many.into_iter().next().unwrap()] {
        let error = answer.unwrap_err();
        assert!(matches!(error, Error::PayloadTooLarge(_)), "{error:?}");
        let sizes = (error.limit_bytes(), error.size_bytes());
        assert_eq!(sizes, (Some(LARGEST as u64), Some(LARGEST as u64 + 1)));
    }
}

#[tokio::test]
async fn unknown_fields() {
    // Field 1,000 with text, and field 536,870,911 with a number.
    let unknown = [&[0xc2, 0x3e, 3][..], b"new", &[0xf8, 0xff, 0xff, 0xff, 0x0f, 7]].concat();
    let server = Server::start().await;
    let client = server.client().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let claimed = Arc::clone(&seen);
    let worker = Worker::builder(&client)
        .queue(QUEUE)
        .handler("h", move |claim: Claim| {
            claimed.lock().unwrap().push(claim.task().unknown_fields());
            async move {
                let is_redriven = claim.task().redrive_count() > 0;
                if is_redriven { Ok(()) } else { Err(Permanent(HandlerError::new("first", ""))) }
            }
        })
        .build()
        .unwrap()
        .start();
    let task = NewTask::new(QUEUE, "h").id("newer").unknown_fields(unknown.clone());
    client.enqueue(task).await.unwrap();

    let dead = until_status(&client, "newer", TaskStatus::Dead).await;
    let listed = client.dlq_list(QUEUE).pages().items().collect().await.unwrap();
    assert_eq!(client.redrive(QUEUE, Selector::ids(["newer"])).run().await.unwrap(), 1);
    let done = until_status(&client, "newer", TaskStatus::Succeeded).await;

    for task in [&dead, &listed[0], &done] {
        assert_eq!(task.unknown_fields(), unknown, "{task:?}");
    }
    assert_eq!(*seen.lock().unwrap(), [unknown.clone(), unknown]);
    worker.stop().await.unwrap();
}

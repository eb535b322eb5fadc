//! Capabilities, streams and signals.

use super::*;

#[tokio::test]
async fn what_the_storage_has_is_among_the_capabilities() {
    let mut clients = clients().await;
    let offer = clients.served.tasks.get_capabilities(v1::GetCapabilitiesRequest {}).await;
    let named = offer.unwrap().into_inner().capabilities;
    for expected in [
        "signals",
        "streams",
        "locks",
        "records",
        "outbox",
        "transactions",
        "interactive_transactions",
        "ledger",
    ] {
        assert!(named.iter().any(|name| name == expected), "{expected} in {named:?}");
    }
}

#[tokio::test]
async fn events_are_read_in_their_order_from_any_start_and_up_to_any_limit() {
    let mut clients = clients().await;
    let first = clients.publish("s", "one").await;
    let keyed = v1::PublishRequest { key: Some("k".into()), ..publish("s", "two") };
    let second = clients.streams.publish(keyed).await.unwrap().into_inner().offset;
    assert!(second > first);

    let from_start = read("s", Some(Start::Offset(i64::MIN)), None);
    let events = clients.streams.read(from_start).await.unwrap().into_inner().events;
    let [one, two] = &events[..] else { panic!("{events:?}") };
    assert_eq!((one.offset, &one.payload[..], &one.key), (first, &b"one"[..], &None));
    assert_eq!((two.offset, &two.stream[..], two.key.as_deref()), (second, "s", Some("k")));
    assert!(one.created_at.is_some());

    for (start, limit, expected) in [
        (Start::Offset(first), None, 1),
        (Start::Offset(second), None, 0),
        (Start::Offset(i64::MAX), None, 0),
        (Start::Offset(-5), Some(1), 1),
        (Start::Offset(0), Some(0), 0),
        (Start::Offset(0), Some(i32::MIN), 0),
        (Start::Offset(0), Some(i32::MAX), 2),
        (Start::Consumer("reader".into()), None, 2),
    ] {
        let request = read("s", Some(start.clone()), limit);
        let events = clients.streams.read(request).await.unwrap().into_inner().events;
        assert_eq!(events.len(), expected, "{start:?} {limit:?}");
    }
    assert_eq!(clients.save("s", "reader", first).await, first);
    assert_eq!(clients.save("s", "reader", -7).await, first, "it never goes back");
    let request = read("s", Some(Start::Consumer("reader".into())), None);
    assert_eq!(clients.streams.read(request).await.unwrap().into_inner().events.len(), 1);
    let trim = |horizon| v1::TrimRequest { stream: "s".into(), horizon };
    for (horizon, count) in [(i64::MIN, 0), (first, 1), (first, 0), (i64::MAX, 1)] {
        let trimmed = clients.streams.trim(trim(horizon)).await.unwrap().into_inner();
        assert_eq!(trimmed.count, count, "{horizon}");
    }
}

#[tokio::test]
async fn an_answer_is_never_larger_than_a_client_reads() {
    let mut clients = clients().await;
    for _ in 0..6 {
        let request = publish("s", vec![7; MIB]);
        clients.streams.publish(request).await.unwrap();
    }
    let mut seen = 0;
    let mut after = 0;
    while seen < 6 {
        let request = read("s", Some(Start::Offset(after)), Some(1_000));
        let events = clients.streams.read(request).await.unwrap().into_inner().events;
        assert!((1..=3).contains(&events.len()), "{}", events.len());
        seen += events.len();
        after = events.last().unwrap().offset;
    }
    let mut subscription = clients.streams.subscribe(subscribe("s")).await.unwrap().into_inner();
    let mut seen = 0;
    while seen < 6 {
        seen += subscription.message().await.unwrap().unwrap().events.len();
    }
}

#[tokio::test]
async fn a_subscription_gets_what_is_there_and_then_what_comes() {
    let mut clients = clients().await;
    let first = clients.publish("s", "old").await;
    clients.publish("s", "one").await;
    clients.save("s", "reader", first).await;
    let mut events = clients.streams.subscribe(subscribe("s")).await.unwrap().into_inner();
    let mut texts = Vec::new();
    for next in [None, Some("two"), Some("three")] {
        if let Some(text) = next {
            clients.publish("s", text).await;
        }
        let expected = texts.len() + 1;
        while texts.len() < expected {
            let events = events.message().await.unwrap().unwrap().events;
            texts.extend(events.iter().map(|it| String::from_utf8_lossy(&it.payload).into_owned()));
        }
    }
    assert_eq!(texts, ["one", "two", "three"]);
    let saved = v1::GetOffsetRequest { stream: "s".into(), consumer: "reader".into() };
    let saved = clients.streams.get_offset(saved).await.unwrap().into_inner().offset;
    assert_eq!(saved, first, "the server saves nothing");

    let Clients { served, .. } = clients;
    let (ended, over) = tokio::join!(served.server.shutdown(), async {
        loop {
            match events.message().await {
                Ok(Some(_)) => {}
                other => return other,
            }
        }
    });
    ended.unwrap();
    let over = over.expect_err("a drain ends it");
    assert_eq!((over.code(), reason(&over)), (Code::Unavailable, "CLOSED".into()));
}

#[tokio::test]
async fn a_listener_is_attached_at_its_first_message_and_woken_by_its_channel_alone() {
    let mut clients = clients().await;
    let listen = v1::ListenRequest { channel: "c".into() };
    let mut wakes = clients.signals.listen(listen).await.unwrap().into_inner();
    let first = wakes.message().await.unwrap().unwrap();
    assert_eq!((first.channel.as_str(), first.reconnected), ("", false));
    for channel in ["other", "c"] {
        let request = v1::NotifyRequest { channel: channel.into(), payload: vec![1; MIB].into() };
        clients.signals.notify(request).await.unwrap();
    }
    assert_eq!(wakes.message().await.unwrap().unwrap().channel, "c");

    let Clients { served, .. } = clients;
    let (ended, over) = tokio::join!(served.server.shutdown(), wakes.message());
    ended.unwrap();
    assert_eq!(reason(&over.expect_err("a drain ends it")), "CLOSED");
}

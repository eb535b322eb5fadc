//! Signals: who listens is woken, whoever notified; nobody else is.

use crate::{Fixture, given::*};
use futures::StreamExt as _;
use rdq_spi::{Storage, Topic, Wake};
use std::time::Duration;

async fn notify(store: &dyn Storage, channel: &rdq_spi::ChannelName) {
    signals(store).notify(vec![channel.clone()]).await.expect("notify");
}

pub(crate) async fn a_notification_wakes_who_listens<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let channel = some_channel();
    let topic = Topic::Channel(channel.clone());
    let mut wakes = [
        listen(&*store, std::slice::from_ref(&topic)).await,
        listen(&*store, std::slice::from_ref(&topic)).await,
        listen(&*other, std::slice::from_ref(&topic)).await,
    ];
    for from in [&store, &other, &store] {
        notify(&**from, &channel).await;
        for listener in &mut wakes {
            hear(listener, &topic).await;
        }
    }
}

pub(crate) async fn who_comes_later_hears_nothing<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    // What was under way when this one came may pass by still, however slowly; it does not for ever.
    for _ in 0..100 {
        let (before, after) = (some_channel(), some_channel());
        notify(&*store, &before).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let topics = [before, after.clone()].map(Topic::Channel);
        let mut wakes = listen(&*store, &topics).await;

        notify(&*store, &after).await;

        if wakes.next().await == Some(Wake::News(topics[1].clone())) {
            return;
        }
    }
    panic!("each listener was told of what had been notified before it came");
}

pub(crate) async fn a_burst_may_coalesce_but_is_heard_of<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let channels: Vec<_> = (0..20).map(|_| some_channel()).collect();
    let topics: Vec<_> = channels.iter().cloned().map(Topic::Channel).collect();
    let mut wakes = listen(&*store, &topics).await;
    for _ in 0..5 {
        signals(&*other).notify(channels.clone()).await.expect("notify");
    }
    let mut missing: std::collections::HashSet<_> = topics.iter().cloned().collect();
    while !missing.is_empty() {
        let wake = tokio::time::timeout(Duration::from_secs(60), wakes.next()).await;
        match wake.expect("a wake was lost").expect("wakes go on") {
            Wake::News(topic) => _ = missing.remove(&topic),
            Wake::Reconnected => missing.clear(),
        }
    }
}

pub(crate) async fn channels_that_look_alike_are_apart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let base = some_channel();
    let suffixes = ["", " ", "%", "*", "_", "A", "a", "é", "e\u{301}", "🦀", "'\"\\"];
    for suffix in suffixes.into_iter().chain(["x".repeat(200).as_str()]) {
        let channel = channel(&format!("{base}{suffix}"));
        let topic = Topic::Channel(channel.clone());
        let mut wakes = listen(&*store, std::slice::from_ref(&topic)).await;
        notify(&*store, &channel).await;
        // A wake names the channel as it was asked for.
        hear(&mut wakes, &topic).await;
    }
}

pub(crate) async fn a_closed_handle_ends_its_listeners<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let mut wakes = listen(&*store, &[Topic::Channel(some_channel())]).await;
    store.close().await;
    let end = async { while wakes.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(60), end).await.expect("an end");
    let again = signals(&*store).listen(vec![Topic::Channel(some_channel())]).await;
    assert!(again.is_err());
}

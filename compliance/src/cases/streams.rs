//! Streams: one order, nothing skipped, nothing twice, and offsets that never go back.

use crate::{Fixture, Random, given::*};
use rdq_spi::{
    EventKey, ReadFrom, ReadParams, Storage, StreamEvent, StreamName, Topic, TrimParams,
};
use std::{collections::HashMap, sync::Arc, time::Duration};

pub(crate) async fn events_come_back_in_the_order_of_their_offsets<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (stream, beside) = (some_stream(), some_stream());
    let mut published = Vec::new();
    for round in 0..4 {
        let from = if round % 2 == 0 { &store } else { &other };
        let events = vec![
            event(&stream, format!("{round}a")),
            event(&beside, "beside"),
            event(&stream, format!("{round}b")),
        ];
        let answers = publish(&**from, events).await;
        published.extend([answers[0], answers[2]]);
    }
    assert!(published.windows(2).all(|pair| pair[0] < pair[1]), "{published:?}");
    assert!(published[0] > 0, "{published:?}");

    let events = read_all(&*store, &stream).await;

    assert_eq!(offsets(&events), published);
    assert_eq!(texts(&events), ["0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b"]);
    assert_eq!(offsets(&read_after(&*other, &stream, published[4]).await), published[5..]);
    let (first, last) = (&events[0], &events[7]);
    assert!(first.created_at <= last.created_at);
    assert_eq!(read_all(&*store, &some_stream()).await, [], "an unknown stream is empty");
}

pub(crate) async fn keys_and_payloads_come_back_exactly<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let stream = some_stream();
    let every_byte: Vec<u8> = (0..=255).collect();
    let events = vec![
        event(&stream, ""),
        event(&stream, every_byte),
        keyed(&stream, " ", "\0"),
        keyed(&stream, "a\0b", "{}"),
        keyed(&stream, &"🦀".repeat(256), vec![7; 300_000]),
        keyed(&stream, "عربي", "null"),
    ];
    publish(&*store, events.clone()).await;

    let found = read_all(&*store, &stream).await;

    assert_eq!(found.len(), events.len());
    for (found, sent) in found.iter().zip(&events) {
        assert_eq!(
            found.key.as_ref().map(EventKey::as_str),
            sent.key.as_ref().map(EventKey::as_str)
        );
        assert_eq!(found.payload, sent.payload);
    }
}

pub(crate) async fn streams_and_consumers_that_look_alike_are_apart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let base = some_stream();
    let suffixes = ["", " ", "a", "A", "%", "_", ":", "é", "e\u{301}", "🦀", "'"];
    for (number, suffix) in (1..).zip(suffixes) {
        let stream = stream(&format!("{base}{suffix}"));
        publish_text(&*store, &stream, suffix).await;
        for (offset, suffix) in (number * 100..).zip(suffixes) {
            save_offset(&*store, &stream, &consumer(&format!("c{suffix}")), offset).await;
        }
    }
    for (number, suffix) in (1..).zip(suffixes) {
        let stream = stream(&format!("{base}{suffix}"));
        assert_eq!(texts(&read_all(&*store, &stream).await), [suffix]);
        for (saved, suffix) in (number * 100..).zip(suffixes) {
            assert_eq!(offset(&*store, &stream, &consumer(&format!("c{suffix}"))).await, saved);
        }
    }
}

pub(crate) async fn any_offset_is_a_place_to_begin<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let stream = some_stream();
    let first = publish_text(&*store, &stream, "one").await;
    publish_text(&*store, &stream, "two").await;
    for (after, expected) in
        [(i64::MIN, 2), (-1, 2), (0, 2), (first, 1), (first + 1_000_000, 0), (i64::MAX, 0)]
    {
        assert_eq!(read_after(&*store, &stream, after).await.len(), expected, "after {after}");
    }
    let reader = consumer("reader");
    let from_reader =
        ReadParams { from: ReadFrom::Consumer(reader.clone()), ..read_params(&stream, 0) };
    let read = || async { streams(&*store).read(from_reader.clone()).await.expect("read").len() };
    assert_eq!(read().await, 2, "who saved nothing begins at the beginning");
    assert_eq!(save_offset(&*store, &stream, &reader, i64::MIN).await, 0);
    assert_eq!(read().await, 2);
    assert_eq!(save_offset(&*store, &stream, &reader, first).await, first);
    assert_eq!(read().await, 1);
    assert_eq!(save_offset(&*store, &stream, &reader, i64::MAX).await, i64::MAX);
    assert_eq!(read().await, 0);
    assert_eq!(trim(&*store, &stream, i64::MIN).await, 0);
    assert_eq!(trim(&*store, &stream, 0).await, 0);
    assert_eq!(trim(&*store, &stream, i64::MAX).await, 2);
    assert_eq!(trim(&*store, &some_stream(), i64::MAX).await, 0);
}

pub(crate) async fn a_read_is_bounded_in_items_and_bytes<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let stream = some_stream();
    let events = (0..20).map(|_| event(&stream, vec![1; 10_000])).collect();
    publish(&*store, events).await;

    let page = |limit, bytes_max| {
        let params = ReadParams { limit, bytes_max, ..read_params(&stream, 0) };
        async { streams(&*store).read(params).await.expect("read").len() }
    };
    assert_eq!(page(7, BYTES_MAX).await, 7);
    if !F::THROUGH_ENGINE {
        assert_eq!(page(20, 1).await, 1, "a first event always fits");
        let some = page(20, 55_000).await;
        assert!((1..=5).contains(&some), "{some}");
    }
}

pub(crate) async fn a_saved_offset_never_goes_back<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (stream, reader) = (some_stream(), consumer("reader"));
    for (saved, left) in [(7, 7), (3, 7), (-5, 7), (7, 7), (8, 8)] {
        assert_eq!(save_offset(&*store, &stream, &reader, saved).await, left);
        assert_eq!(offset(&*other, &stream, &reader).await, left);
    }
    assert_eq!(offset(&*store, &stream, &consumer("another")).await, 0);
}

pub(crate) async fn concurrent_saves_leave_the_highest<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let (stream, reader) = (some_stream(), consumer("reader"));
    let saves = (0..40_usize).map(|number| {
        let (store, stream, reader) = (stores[number % 2].clone(), stream.clone(), reader.clone());
        let offset = i64::try_from(number * 7 % 40).expect("small");
        tokio::spawn(async move { save_offset(&*store, &stream, &reader, offset).await })
    });
    for save in saves.collect::<Vec<_>>() {
        save.await.expect("a save");
    }
    assert_eq!(offset(&*stores[0], &stream, &reader).await, 39);
}

pub(crate) async fn a_trim_removes_up_to_its_horizon_exactly<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (stream, beside, reader) = (some_stream(), some_stream(), consumer("reader"));
    let mut published = Vec::new();
    for number in 0..10 {
        published.push(publish_text(&*store, &stream, &number.to_string()).await);
        publish_text(&*store, &beside, "beside").await;
    }
    save_offset(&*store, &stream, &reader, published[2]).await;

    assert_eq!(trim(&*other, &stream, published[4]).await, 5);
    assert_eq!(trim(&*other, &stream, published[4]).await, 0, "once");

    let left = read_all(&*store, &stream).await;
    assert_eq!(offsets(&left), published[5..], "offsets stay");
    assert_eq!(texts(&left), ["5", "6", "7", "8", "9"]);
    assert_eq!(offset(&*store, &stream, &reader).await, published[2], "a mark below stays valid");
    let from_mark = ReadParams { from: ReadFrom::Consumer(reader), ..read_params(&stream, 0) };
    assert_eq!(streams(&*store).read(from_mark).await.expect("read"), left);
    assert_eq!(read_all(&*store, &beside).await.len(), 10);
}

pub(crate) async fn offsets_are_not_reused_after_a_trim<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let stream = some_stream();
    let mut last = 0;
    for from in [&store, &other, &store] {
        let next = publish_text(&**from, &stream, "again").await;
        assert!(next > last, "{next} after {last}");
        last = next;
        assert_eq!(trim(&*other, &stream, i64::MAX).await, 1);
    }
}

pub(crate) async fn a_trim_goes_in_bounded_steps<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let stream = some_stream();
    publish(&*store, (0..25).map(|_| event(&stream, "x")).collect()).await;
    let mut counts = Vec::new();
    loop {
        let params = TrimParams { stream: stream.clone(), horizon: i64::MAX, limit: 10 };
        let step = streams(&*store).trim(params).await.expect("trim");
        counts.push(step.count);
        if !step.more {
            break;
        }
    }
    assert_eq!(counts.iter().sum::<u64>(), 25);
    assert!(F::THROUGH_ENGINE || counts.iter().all(|count| *count <= 10), "{counts:?}");
}

pub(crate) async fn a_reader_loses_nothing_beside_a_trim<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let stream = some_stream();
    let topic = Topic::Stream(stream.clone());
    let mut wakes = listen(&*store, std::slice::from_ref(&topic)).await;
    let publisher = tokio::spawn({
        let (store, stream) = (other.clone(), stream.clone());
        async move {
            for number in 0..60 {
                let offset = publish_text(&*store, &stream, &number.to_string()).await;
                // What is trimmed is well behind whoever reads in order and was seen by nobody yet
                // at worst: the reader below counts what was trimmed before it came.
                if number % 10 == 9 {
                    trim(&*store, &stream, offset - 30).await;
                }
            }
        }
    });
    let mut seen: Vec<String> = Vec::new();
    let mut after = 0;
    while seen.last().is_none_or(|last| last != "59") {
        let events = read_after(&*store, &stream, after).await;
        match events.last() {
            Some(last) => after = last.offset,
            None => hear(&mut wakes, &topic).await,
        }
        seen.extend(texts(&events));
    }
    publisher.await.expect("the publisher");
    let numbers: Vec<i32> = seen.iter().map(|text| text.parse().expect("a number")).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order, none twice: {numbers:?}");
    let left = texts(&read_all(&*store, &stream).await);
    assert!(seen.ends_with(&left), "what is left was all seen: {left:?}");
}

pub(crate) async fn an_event_wakes_who_listens<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let stream = some_stream();
    let topic = Topic::Stream(stream.clone());
    let mut wakes = [
        listen(&*store, std::slice::from_ref(&topic)).await,
        listen(&*other, std::slice::from_ref(&topic)).await,
    ];
    for from in [&store, &other, &store] {
        let published = publish_text(&**from, &stream, "news").await;
        for (listener, reader) in wakes.iter_mut().zip([&store, &other]) {
            hear(listener, &topic).await;
            let seen = offsets(&read_all(&**reader, &stream).await);
            assert_eq!(seen.last(), Some(&published), "who is woken finds it");
        }
    }
}

pub(crate) async fn readers_miss_nothing_of_concurrent_publishers<F: Fixture>(fixture: F) {
    const PUBLISHERS: usize = 12;
    const EACH: usize = 25;
    let stores = [fixture.open().await, fixture.open().await];
    let stream = some_stream();
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| {
            let (store, stream) = (stores[publisher % 2].clone(), stream.clone());
            tokio::spawn(async move {
                let mut random = Random::seeded(publisher as u64);
                let mut sent = 0;
                while sent < EACH {
                    let count = (1 + random.below(4)).min(EACH - sent);
                    let events = (sent..sent + count)
                        .map(|number| keyed(&stream, &publisher.to_string(), number.to_string()));
                    publish(&*store, events.collect()).await;
                    sent += count;
                }
            })
        })
        .collect();
    let (done, is_done) = tokio::sync::oneshot::channel();
    let reader = tokio::spawn(read_along(stores[1].clone(), stream.clone(), is_done));
    for publisher in publishers {
        publisher.await.expect("a publisher");
    }
    done.send(()).expect("the reader");
    let seen = reader.await.expect("the reader");

    assert_eq!(seen, read_all(&*stores[0], &stream).await, "a reader saw all, in order");
    let mut by_publisher: HashMap<_, Vec<String>> = HashMap::new();
    for (event, text) in seen.iter().zip(texts(&seen)) {
        by_publisher.entry(event.key.clone()).or_default().push(text);
    }
    assert_eq!(by_publisher.len(), PUBLISHERS);
    for texts in by_publisher.values() {
        let expected: Vec<_> = (0..EACH).map(|number| number.to_string()).collect();
        assert_eq!(*texts, expected, "each publisher's events in the order it sent them");
    }
}

/// Reads on from the last event seen, until a last look once it is done.
pub(super) async fn read_along(
    store: Arc<dyn Storage>,
    stream: StreamName,
    mut is_done: tokio::sync::oneshot::Receiver<()>,
) -> Vec<StreamEvent> {
    let mut seen: Vec<StreamEvent> = Vec::new();
    loop {
        let is_last = is_done.try_recv().is_ok();
        let after = seen.last().map_or(0, |event| event.offset);
        seen.extend(read_after(&*store, &stream, after).await);
        if is_last {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

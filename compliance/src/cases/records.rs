//! Records: one of many changes wins, revisions only grow, lists are stable.

use crate::{Fixture, given::*};
use bytes::Bytes;
use rdq_spi::{ListRecords, Position, Record, Storage, StorageError};

pub(crate) async fn a_record_is_made_changed_and_removed<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let name = some_key();
    assert_eq!(get_record(&*store, &name).await, None);

    assert_eq!(change(&*store, set(&name, 0, "one")).await.expect("made"), 1);
    let one = get_record(&*other, &name).await.expect("there");
    assert_eq!((&one.name, &one.value[..], one.revision), (&name, &b"one"[..], 1));
    assert_eq!(change(&*other, set(&name, 1, "two")).await.expect("changed"), 2);
    let two = get_record(&*store, &name).await.expect("there");
    assert_eq!((&two.value[..], two.revision), (&b"two"[..], 2));
    assert!(two.updated_at >= one.updated_at);
    assert_eq!(change(&*store, unset(&name, 2)).await.expect("removed"), 2);
    assert_eq!(get_record(&*other, &name).await, None);
}

pub(crate) async fn another_revision_is_a_conflict_and_changes_nothing<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let name = some_key();
    for expected in [1, 2, i64::MAX] {
        assert!(is_conflict(&change(&*store, set(&name, expected, "x")).await), "{expected}");
        assert!(is_conflict(&change(&*store, unset(&name, expected)).await), "{expected}");
    }
    assert_eq!(get_record(&*store, &name).await, None);
    change(&*store, set(&name, 0, "one")).await.expect("made");
    change(&*store, set(&name, 1, "two")).await.expect("changed");
    for expected in [0, 1, 3, i64::MAX] {
        assert!(is_conflict(&change(&*store, set(&name, expected, "x")).await), "{expected}");
    }
    for expected in [1, 3, i64::MAX] {
        assert!(is_conflict(&change(&*store, unset(&name, expected)).await), "{expected}");
    }
    let record = get_record(&*store, &name).await.expect("there");
    assert_eq!((&record.value[..], record.revision), (&b"two"[..], 2));
}

pub(crate) async fn one_of_many_concurrent_changes_wins<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let name = some_key();
    for expected in 0..4 {
        let changes: Vec<_> = (0..20_usize)
            .map(|number| {
                let (store, name) = (stores[number % 2].clone(), name.clone());
                tokio::spawn(async move {
                    (number, change(&*store, set(&name, expected, number.to_string())).await)
                })
            })
            .collect();
        let mut winners = Vec::new();
        for attempt in changes {
            match attempt.await.expect("a change") {
                (number, Ok(revision)) => winners.push((number.to_string(), revision)),
                (_, answer) => assert!(is_conflict(&answer), "{answer:?}"),
            }
        }
        let record = get_record(&*stores[0], &name).await.expect("there");
        let value = String::from_utf8_lossy(&record.value).into_owned();
        assert_eq!(winners, [(value, expected + 1)]);
    }
}

pub(crate) async fn increments_by_many_lose_none<F: Fixture>(fixture: F) {
    const EACH: usize = 6;
    let stores = [fixture.open().await, fixture.open().await];
    let name = some_key();
    change(&*stores[0], set(&name, 0, "0")).await.expect("made");
    let counters: Vec<_> = (0..6_usize)
        .map(|number| {
            let (store, name) = (stores[number % 2].clone(), name.clone());
            tokio::spawn(async move {
                let mut done = 0;
                while done < EACH {
                    let record = get_record(&*store, &name).await.expect("there");
                    let value: u64 = std::str::from_utf8(&record.value)
                        .expect("text")
                        .parse()
                        .expect("a number");
                    let next = set(&name, record.revision, (value + 1).to_string());
                    match change(&*store, next).await {
                        Ok(_) => done += 1,
                        answer => assert!(is_conflict(&answer), "{answer:?}"),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for counter in counters {
        counter.await.expect("a counter");
    }
    let record = get_record(&*stores[0], &name).await.expect("there");
    assert_eq!((&record.value[..], record.revision), (&b"36"[..], 37));
}

pub(crate) async fn revisions_go_on_after_a_removal<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let name = some_key();
    let mut last = 0;
    for from in [&store, &other, &store] {
        let made = change(&**from, set(&name, 0, "again")).await.expect("made");
        assert_eq!(made, last + 1);
        let changed = change(&**from, set(&name, made, "more")).await.expect("changed");
        assert_eq!(change(&**from, unset(&name, changed)).await.expect("removed"), changed);
        assert!(is_conflict(&change(&**from, unset(&name, changed)).await), "once");
        assert!(is_conflict(&change(&**from, set(&name, changed, "late")).await));
        last = changed;
    }
}

pub(crate) async fn changes_of_a_batch_are_answered_each<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (one, two, three) = (some_key(), some_key(), some_key());
    let changes = vec![
        set(&one, 0, "a"),
        set(&two, 5, "b"),
        set(&three, 0, "c"),
        set(&one, 1, "d"),
        unset(&three, 1),
        set(&one, 1, "late"),
    ];
    let answers = records(&*store).compare_and_set(changes).await.expect("compare_and_set");

    assert_eq!(answers.len(), 6);
    let revision = |number: usize| *answers[number].as_ref().expect("a revision");
    assert_eq!((revision(0), revision(2), revision(3), revision(4)), (1, 1, 2, 1));
    assert!(is_conflict(&answers[1]) && is_conflict(&answers[5]), "{answers:?}");
    assert_eq!(&get_record(&*store, &one).await.expect("there").value[..], b"d");
    assert_eq!(get_record(&*store, &three).await, None);
}

pub(crate) async fn keys_and_values_come_back_exactly<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let base = some_key();
    let suffixes = ["", " ", "a", "A", "%", "_", ":", "é", "e\u{301}", "🦀", "'", "عربي"];
    let value = |suffix: &str| match suffix {
        "" => Bytes::new(),
        "a" => Bytes::from((0..=255).collect::<Vec<u8>>()),
        "A" => Bytes::from(vec![9; 300_000]),
        other => Bytes::from(other.to_owned()),
    };
    for suffix in suffixes {
        let name = record_name(&format!("{base}{suffix}"));
        assert_eq!(change(&*store, set(&name, 0, value(suffix))).await.expect("made"), 1);
    }
    for suffix in suffixes {
        let name = record_name(&format!("{base}{suffix}"));
        let record = get_record(&*store, &name).await.expect("there");
        assert_eq!((record.name, record.value), (name, value(suffix)));
    }
}

/// Every page of a list, so many at a time.
async fn list_all(store: &dyn Storage, prefix: &str, limit: u32) -> Vec<Record> {
    let mut found = Vec::new();
    let mut position = None;
    loop {
        let params = ListRecords { position, ..record_params(prefix, limit) };
        let page = list_records(store, params).await;
        assert!(page.records.len() <= limit as usize);
        found.extend(page.records);
        match page.next {
            Some(next) => position = Some(next),
            None => return found,
        }
    }
}

fn names(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.name.as_str()).collect()
}

pub(crate) async fn a_list_goes_by_key_and_prefix<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let base = some_key();
    let mut keys: Vec<_> = ["", "a", "aa", "b", "B", "%", "_", "é", "z", "🦀", "a b"]
        .iter()
        .map(|suffix| format!("{base}/{suffix}"))
        .collect();
    for key in &keys {
        change(&*store, set(&record_name(key), 0, "x")).await.expect("made");
    }
    change(&*store, set(&record_name(&format!("{base}0")), 0, "beyond")).await.expect("made");
    keys.sort_unstable();

    for limit in [1, 3, 100] {
        let found = list_all(&*store, &format!("{base}/"), limit).await;
        assert_eq!(names(&found), keys, "by the bytes of the keys, {limit} at a time");
    }
    let found = list_all(&*store, &format!("{base}/a"), 100).await;
    assert_eq!(names(&found), [format!("{base}/a"), format!("{base}/a b"), format!("{base}/aa")]);
    assert_eq!(list_all(&*store, &format!("{base}/%%"), 100).await, []);
}

pub(crate) async fn arrivals_and_departures_disturb_no_list<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let base = some_key();
    let at = |number: usize| record_name(&format!("{base}/{number:03}"));
    for number in (0..30).map(|it| it * 10) {
        change(&*store, set(&at(number), 0, "old")).await.expect("made");
    }
    let prefix = format!("{base}/");
    let first = list_records(&*store, record_params(&prefix, 10)).await;
    let mut position = first.next.expect("a next page");

    // Beside what was read and what was not: one goes that was read, one that was not; new ones come;
    // one changes, which does not make it new; and one goes and comes again, which does.
    for gone in [50, 150, 250] {
        change(&*other, unset(&at(gone), 1)).await.expect("removed");
    }
    for new in [5, 155, 255] {
        change(&*other, set(&at(new), 0, "new")).await.expect("made");
    }
    change(&*other, set(&at(200), 1, "changed")).await.expect("changed");
    change(&*other, set(&at(250), 0, "again")).await.expect("made again");

    let mut found = first.records;
    loop {
        let params = ListRecords { position: Some(position), ..record_params(&prefix, 10) };
        let page = list_records(&*store, params).await;
        found.extend(page.records);
        match page.next {
            Some(next) => position = next,
            None => break,
        }
    }
    let expected: Vec<_> = (0..30)
        .map(|it| it * 10)
        .filter(|number| ![150, 250].contains(number))
        .map(|number| at(number).to_string())
        .collect();
    assert_eq!(names(&found), expected);
}

pub(crate) async fn positions_that_nobody_minted_are_refused<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let base = some_key();
    for suffix in ["a", "b", "c"] {
        let name = record_name(&format!("{base}{suffix}"));
        change(&*store, set(&name, 0, "x")).await.expect("made");
    }
    let prefix = base.as_str();
    let minted = list_records(&*store, record_params(prefix, 1)).await.next.expect("a next page");
    for bytes in [Bytes::from_static(b"x"), minted.0.slice(1..), Bytes::from(vec![0xff; 64])] {
        let position = Some(Position(bytes));
        let params = ListRecords { position, ..record_params(prefix, 1) };
        let answer = records(&*store).list_records(params).await;
        assert!(matches!(answer, Err(StorageError::InvalidPosition)), "{answer:?}");
    }
}

//! Locks: one holder at a time, by the storage's clock, and numbers that only grow.

use crate::{Fixture, given::*, holders::Holders};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub(crate) async fn one_of_many_gets_the_lock<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let name = some_lock();
    let tries: Vec<_> = (0..40)
        .map(|number: usize| {
            let (store, name) = (stores[number % 2].clone(), name.clone());
            let owner = owner(&number.to_string());
            tokio::spawn(async move { try_lock(&*store, &name, &owner, LONG_LEASE).await })
        })
        .collect();
    let mut winners = Vec::new();
    for attempt in tries {
        winners.extend(attempt.await.expect("a try"));
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    let held = get_lock(&*stores[0], &name).await.expect("held");
    assert_eq!((&held.owner, held.generation), (&winners[0].owner, winners[0].generation));
    assert_eq!(held.expires_at, winners[0].expires_at);
    assert!(held.remaining <= LONG_LEASE && held.remaining > LONG_LEASE / 2, "{held:?}");
    assert_eq!(get_lock(&*stores[0], &some_lock()).await, None);
}

pub(crate) async fn the_holder_gets_the_hold_that_it_has<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (name, me) = (some_lock(), owner("me"));
    let first = try_lock(&*store, &name, &me, LONG_LEASE).await.expect("acquired");

    let again = try_lock(&*other, &name, &me, LONG_LEASE * 2).await.expect("acquired");

    assert_eq!(again.generation, first.generation);
    assert_eq!(again.expires_at, first.expires_at, "only a renewal moves the end");
    assert_eq!(try_lock(&*store, &name, &owner("you"), LONG_LEASE).await, None);
}

pub(crate) async fn a_hold_that_ended_is_over_and_free<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (name, me, you) = (some_lock(), owner("me"), owner("you"));
    let held = try_lock(&*store, &name, &me, SHORT_LEASE).await.expect("acquired");
    lapse(SHORT_LEASE).await;

    assert_eq!(get_lock(&*store, &name).await, None);
    assert_eq!(renew(&*store, hold(&name, &held), LONG_LEASE).await, None, "nobody came, yet over");
    assert_eq!(renew(&*store, any_hold(&name, &me), LONG_LEASE).await, None);
    assert!(!release(&*store, hold(&name, &held)).await);
    let next = try_lock(&*store, &name, &you, LONG_LEASE).await.expect("free");
    assert!(next.generation > held.generation);
    assert!(!release(&*store, hold(&name, &held)).await, "the late one takes nothing away");
    assert_eq!(get_lock(&*store, &name).await.expect("held").owner, you);
}

pub(crate) async fn only_the_holder_renews_and_releases<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (name, me, you) = (some_lock(), owner("me"), owner("you"));
    assert_eq!(renew(&*store, any_hold(&name, &me), LONG_LEASE).await, None, "nobody holds it");
    assert!(!release(&*store, any_hold(&name, &me)).await);
    let held = try_lock(&*store, &name, &me, LONG_LEASE).await.expect("acquired");

    assert_eq!(renew(&*other, any_hold(&name, &you), LONG_LEASE).await, None);
    assert!(!release(&*other, any_hold(&name, &you)).await);
    let shorter = renew(&*other, any_hold(&name, &me), LONG_LEASE / 2).await.expect("renewed");
    assert_eq!(shorter.generation, held.generation);
    assert!(shorter.expires_at < held.expires_at, "now + ttl, whatever it was");
    let longer = renew(&*store, hold(&name, &held), LONG_LEASE * 2).await.expect("renewed");
    assert!(longer.expires_at > held.expires_at);
    assert!(release(&*other, hold(&name, &held)).await);
    assert!(!release(&*other, hold(&name, &held)).await, "once");
    assert_eq!(get_lock(&*store, &name).await, None);
}

pub(crate) async fn a_hold_is_told_from_the_owners_earlier_ones<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (name, me) = (some_lock(), owner("me"));
    let first = try_lock(&*store, &name, &me, LONG_LEASE).await.expect("acquired");
    assert!(release(&*store, hold(&name, &first)).await);
    let second = try_lock(&*store, &name, &me, LONG_LEASE).await.expect("acquired");

    assert_eq!(renew(&*store, hold(&name, &first), LONG_LEASE).await, None);
    assert!(!release(&*store, hold(&name, &first)).await);
    assert!(renew(&*store, hold(&name, &second), LONG_LEASE).await.is_some());
}

pub(crate) async fn renewals_keep_it_among_those_who_want_it<F: Fixture>(fixture: F) {
    // A ttl that a renewal does not miss on however slow a machine.
    const TTL: Duration = Duration::from_secs(20);
    let stores = [fixture.open().await, fixture.open().await];
    let name = some_lock();
    let inside = Arc::new(AtomicUsize::new(0));
    let holders: Vec<_> = (0..8)
        .map(|number: usize| {
            let (store, name) = (stores[number % 2].clone(), name.clone());
            let (me, inside) = (owner(&number.to_string()), inside.clone());
            tokio::spawn(async move {
                let mut generations = Vec::new();
                while generations.len() < 5 {
                    let Some(held) = try_lock(&*store, &name, &me, TTL).await else {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        continue;
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    tokio::task::yield_now().await;
                    let renewed = renew(&*store, hold(&name, &held), TTL).await;
                    assert_eq!(renewed.expect("renewed").generation, held.generation);
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "alone");
                    assert!(release(&*store, hold(&name, &held)).await);
                    generations.push(held.generation);
                }
                generations
            })
        })
        .collect();
    let mut generations = Vec::new();
    for holder in holders {
        generations.extend(holder.await.expect("a holder"));
    }
    let count = generations.len();
    generations.sort_unstable();
    generations.dedup();
    assert_eq!(generations.len(), count, "no generation twice");
}

pub(crate) async fn generations_grow_over_releases_and_lapses<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let name = some_lock();
    let mut last = 0;
    for (round, from) in [&store, &other, &store, &other].into_iter().enumerate() {
        let ttl = if round % 2 == 0 { SHORT_LEASE } else { LONG_LEASE };
        let me = owner(if round < 2 { "me" } else { "you" });
        let held = try_lock(&**from, &name, &me, ttl).await.expect("free");
        assert!(held.generation > last, "{} after {last}", held.generation);
        last = held.generation;
        if round % 2 == 0 {
            lapse(SHORT_LEASE).await;
        } else {
            assert!(release(&**from, hold(&name, &held)).await);
        }
    }
}

pub(crate) async fn the_generation_fences_off_who_held_it_before<F: Fixture>(fixture: F) {
    let tally = Holders::start(async || fixture.open().await).await.finish().await;
    assert_eq!(tally.failed, 0, "nothing was in the way");
}

pub(crate) async fn names_and_owners_that_look_alike_are_apart<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let base = some_lock();
    let suffixes = ["", " ", "a", "A", "%", "_", ":", "é", "e\u{301}", "🦀", "'"];
    for suffix in suffixes {
        let name = lock(&format!("{base}{suffix}"));
        let mine = owner(&format!("o{suffix}"));
        let held = try_lock(&*store, &name, &mine, LONG_LEASE).await.expect("a lock of its own");
        assert_eq!(held.owner, mine);
        for other in suffixes.into_iter().filter(|other| *other != suffix) {
            let other = owner(&format!("o{other}"));
            assert_eq!(try_lock(&*store, &name, &other, LONG_LEASE).await, None, "{name} {other}");
        }
    }
}

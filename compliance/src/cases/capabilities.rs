//! What a plugin claims beyond the contract, and whether it is so.

use crate::{Fixture, given::*};
use rdq_spi::{Faculties, StorageError};

pub(crate) async fn they_are_what_the_fixture_claims<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    assert_eq!(store.capabilities(), F::CAPABILITIES);
    assert_eq!(fixture.open().await.capabilities(), F::CAPABILITIES, "every handle alike");
}

pub(crate) async fn a_storage_without_hints_says_so<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let answer = store.wait_due(vec![some_queue()]).await.err();
    assert!(matches!(answer, Some(StorageError::Unsupported { .. })), "{answer:?}");
}

pub(crate) async fn a_storage_that_is_up_answers<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    store.ping().await.expect("ping");
    assert!(!format!("{store:?}").is_empty());
}

pub(crate) async fn faculties_are_what_the_fixture_claims<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    assert_eq!(Faculties::of(&*store), F::FACULTIES);
    if F::FACULTIES.transactions && !F::FACULTIES.interactive {
        let answer = transactions(&*store).begin().await.err();
        assert!(matches!(answer, Some(StorageError::Unsupported { .. })), "{answer:?}");
    }
    if F::FACULTIES.records && !F::THROUGH_ENGINE {
        let (one, two) = (store.now().await, store.now().await);
        assert!(one.expect("now") <= two.expect("now"));
    }
}

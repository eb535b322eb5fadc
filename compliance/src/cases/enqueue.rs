//! Admission: once an id, whatever is sent again.

use crate::{Fixture, given::*};

pub(crate) async fn a_repeated_id_is_the_same_task<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let first = Draft::of(&queue);
    enqueue(&*store, first.clone()).await;
    let before = get(&*store, &first.task.id).await;

    let again = first.clone().payload("another").priority(9);
    let answer = admit(&*store, &[again]).await.remove(0).expect("the same task");

    assert!(!answer.created);
    assert_eq!(get(&*store, &first.task.id).await, before, "the first admission wins");
}

//! Locks.

use super::*;

#[tokio::test]
async fn a_lock_has_one_holder_until_it_is_released() {
    let mut clients = clients().await;
    let try_lock = |owner: &str| v1::TryLockRequest {
        name: "l".into(),
        owner: owner.into(),
        ttl: Some(seconds(60)),
    };
    let first = clients.locks.try_lock(try_lock("a")).await.unwrap().into_inner();
    assert!(first.acquired && first.generation > 0);
    let again = clients.locks.try_lock(try_lock("a")).await.unwrap().into_inner();
    assert_eq!((again.generation, again.expires_at), (first.generation, first.expires_at));
    let other = clients.locks.try_lock(try_lock("b")).await.unwrap().into_inner();
    assert_eq!(other, v1::TryLockResponse::default(), "an answer, not an error");

    let renew = |owner: &str, generation| v1::RenewRequest {
        name: "l".into(),
        owner: owner.into(),
        generation,
        ttl: Some(seconds(120)),
    };
    let renewed = clients.locks.renew(renew("a", None)).await.unwrap().into_inner();
    assert!(
        renewed.renewed && renewed.expires_at.unwrap().seconds > first.expires_at.unwrap().seconds
    );
    for (owner, generation) in [("b", None), ("a", Some(first.generation + 1))] {
        let renewed = clients.locks.renew(renew(owner, generation)).await.unwrap().into_inner();
        assert_eq!(renewed, v1::RenewResponse::default(), "{owner} {generation:?}");
    }
    let get = || v1::GetLockRequest { name: "l".into() };
    let held = clients.locks.get_lock(get()).await.unwrap().into_inner();
    assert_eq!((held.held, held.owner.as_str()), (true, "a"));
    assert!((119..=120).contains(&held.remaining.unwrap().seconds), "{held:?}");

    let release = || v1::LockServiceReleaseRequest {
        name: "l".into(),
        owner: "a".into(),
        generation: Some(first.generation),
    };
    assert!(clients.locks.release(release()).await.unwrap().into_inner().released);
    assert!(!clients.locks.release(release()).await.unwrap().into_inner().released);
    let held = clients.locks.get_lock(get()).await.unwrap().into_inner();
    assert_eq!(held, v1::GetLockResponse::default());
    let next = clients.locks.try_lock(try_lock("b")).await.unwrap().into_inner();
    assert!(next.generation > first.generation);
}

//! F5 and F8, of the disk that the database's server writes to: its power is cut, and it is full.

use super::scene::{Scene, lasting};
use crate::harness::{
    Verdict, calls,
    database::{Database, Kind},
    disk::Disk,
    until,
};
use rdq_compliance::Random;
use rdq_proto::v1::{self, ErrorReason};
use tonic::Code;

/// MongoDB keeps a log of 100 MiB ahead.
const fn disk_mib(kind: Kind) -> u64 {
    if matches!(kind, Kind::Mongodb) { 640 } else { 192 }
}
const CUTS: usize = 2;
/// A queue beside the crew's, and what is written to it while the disk is full.
const LARGE: &str = "large";
const PAYLOAD_BYTES: usize = 256 << 10;

pub(crate) async fn power_cut_loses_nothing(kind: Kind, mut random: Random) -> Verdict {
    let disk = Disk::mounted(disk_mib(kind))?;
    let database = Database::start_on(&disk, kind).await?;
    let mut scene = Scene::start_on(database, &mut random).await;
    for _ in 0..CUTS {
        scene.works_on().await;
        let process = scene.database.process();
        // First the server's, so that nothing is acknowledged any more: the file system, when it is
        // shut down, lets a flush that is under way succeed although its data is lost.
        process.pause();
        disk.cut_power()?;
        process.kill_all();
        until("the disk is let go", async || disk.unmount().ok()).await;
        disk.mount()?;
        scene.database.process().start_again().expect("the database starts again");
    }
    scene.works_on().await;
    scene.ends_well(&[], CUTS).await;
    Ok(())
}

pub(crate) async fn full_disk_is_told(kind: Kind, mut random: Random) -> Verdict {
    let disk = Disk::mounted(disk_mib(kind))?;
    let database = Database::start_on(&disk, kind).await?;
    let mut scene = Scene::start_on(database, &mut random).await;
    assert!(disk.fill() > 1 << 20, "the disk was not full");
    let mut number = 0;
    let refusal = until("a write is refused", async || {
        number += 1;
        let payload = random.bytes(PAYLOAD_BYTES);
        let task = v1::Task { payload: payload.into(), ..lasting(&format!("l-{number}"), LARGE) };
        scene.clients[0].enqueue(&task).await.err()
    })
    .await;
    let told = (refusal.code(), calls::reason(&refusal));
    let expected = [
        (Code::ResourceExhausted, Some(ErrorReason::StorageFull)),
        (Code::Unavailable, Some(ErrorReason::StorageUnavailable)),
    ];
    assert!(expected.contains(&told), "{refusal:?}");
    eprintln!("refused after {number} writes: {told:?}");

    disk.free();
    until("it is written again, without a restart of rdq", async || {
        // Some databases end when they cannot write. Whoever looks after them starts them again.
        if scene.database.process().has_ended() {
            scene.database.process().start_again().expect("the database starts again");
        }
        let [one, two] = &scene.clients;
        let after = lasting("after", LARGE);
        one.enqueue(&after).await.and(two.enqueue(&after).await).ok()
    })
    .await;
    scene.works_on().await;
    let held = calls::claim(LARGE, 1_000, std::time::Duration::from_secs(60));
    let client = scene.clients[0].clone();
    until("what was admitted meanwhile is done", async || {
        for held in client.claim(held.clone()).await.expect("the server claims") {
            client.complete(&held).await.expect("the claim is good");
        }
        let stats = calls::stats(&client.tasks, LARGE).await.expect("stats");
        (stats.pending + stats.in_flight == 0).then_some(())
    })
    .await;
    // The crew need not have noticed: what it writes is small.
    scene.ends_well(&[LARGE], 0).await;
    Ok(())
}

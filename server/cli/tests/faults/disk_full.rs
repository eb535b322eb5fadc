//! F8: the disk is full, and then it is not.

use super::power_cut::is_sound;
use crate::harness::{
    Verdict,
    calls::{self, Tasks},
    crew::{Crew, Temper, Way},
    disk::Disk,
    recorded::Recorded,
    server::Server,
    until,
};
use rdq_compliance::{Random, history::History};
use rdq_proto::v1::ErrorReason;
use rdq_spi::TaskStatus;
use rustix::process::Signal;
use std::{collections::HashMap, time::Duration};
use tonic::Code;

const QUEUE: &str = "full";
/// The payloads written against the full disk, and how many refusals are enough.
const PAYLOAD_BYTES: usize = 64 << 10;
const REFUSALS: usize = 20;

pub(crate) async fn is_told_and_survived(mut random: Random) -> Verdict {
    let disk = Disk::mounted(48)?;
    let path = disk.path().join("rdq.db");
    let mut server = Server::on_file(&path).await;
    let history = History::new();
    let client = Recorded::new(Tasks::new(server.channel()), &history);
    for number in 0..50 {
        let task = calls::task(&format!("before-{number}"), QUEUE, random.bytes(1_000));
        client.enqueue(&task).await.expect("admitted");
    }

    assert!(disk.fill() > 1 << 20, "the disk was not full");
    let refused = refusals(&client, &mut random).await;
    eprintln!("refused: {refused:?}");
    assert!(refused.values().sum::<usize>() >= REFUSALS, "the full disk was not noticed");
    for (code, reason) in refused.keys() {
        let told = match code {
            Code::ResourceExhausted => *reason == Some(ErrorReason::StorageFull),
            Code::Unavailable => *reason == Some(ErrorReason::StorageUnavailable),
            _ => false,
        };
        assert!(told, "{code:?} with {reason:?}");
    }
    calls::get(&client.tasks, "before-0").await.expect("one can read");
    let stats = calls::stats(&client.tasks, QUEUE).await.expect("one can count");
    assert!(stats.pending >= 50, "{stats:?}");
    assert_eq!(
        calls::list(&client.tasks, QUEUE).await.expect("one can list").len(),
        usize::try_from(stats.pending).expect("a count")
    );

    disk.free();
    until("it writes again, without a restart", async || {
        client.enqueue(&calls::task("after", QUEUE, "x")).await.ok()
    })
    .await;
    assert!(server.is_alive());
    let mut crew = Crew::new(QUEUE, Temper::default(), Duration::from_secs(5));
    crew.worker(&client, Way::Work, Random::seeded(random.next_u64()));
    crew.drain(&client).await;
    let counts = client.judge(&[QUEUE]).await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), [&TaskStatus::Succeeded], "{counts:?}");
    server.signal(Signal::TERM);
    server.ended().await;
    is_sound(&path);
    Ok(())
}

/// Writes against the full disk, one call at a time and several at once, until it was refused often
/// enough.
async fn refusals(
    client: &Recorded,
    random: &mut Random,
) -> HashMap<(Code, Option<ErrorReason>), usize> {
    let mut refused = HashMap::new();
    for round in 0..200 {
        let tasks = (0..4).map(|number| {
            let id = format!("during-{round}-{number}");
            calls::task(&id, QUEUE, random.bytes(PAYLOAD_BYTES))
        });
        let calls = tasks.map(|task| {
            let client = client.clone();
            tokio::spawn(async move { client.enqueue(&task).await })
        });
        for call in calls.collect::<Vec<_>>() {
            if let Err(status) = call.await.expect("the call does not panic") {
                *refused.entry((status.code(), calls::reason(&status))).or_default() += 1;
            }
        }
        if refused.values().sum::<usize>() >= REFUSALS {
            break;
        }
    }
    refused
}

//! F1: the server is killed, again and again, under load.

use crate::harness::{
    Verdict,
    calls::Tasks,
    crew::{Crew, Temper, Way},
    recorded::Recorded,
    server::Server,
};
use rdq_compliance::{Random, history::History};
use rdq_spi::TaskStatus;
use std::time::Duration;

const KILLS: usize = 5;
const LEASE: Duration = Duration::from_secs(1);

pub(crate) async fn loses_nothing(mut random: Random) -> Verdict {
    let folder = tempfile::tempdir().expect("a directory");
    let mut server = Server::on_file(&folder.path().join("rdq.db")).await;
    let history = History::new();
    let client = || Recorded::new(Tasks::new(server.channel()), &history);
    let temper = Temper { fail: 5, release: 3, extend: 10, abandon: 2, ..Temper::default() };
    let mut crew = Crew::new("kill", temper, LEASE);
    for number in 0..3 {
        let seed = Random::seeded(random.next_u64());
        crew.producer(&client(), &format!("p{number}"), seed);
    }
    for way in [Way::Unary, Way::Unary, Way::Follow, Way::Work, Way::Work] {
        crew.worker(&client(), way, Random::seeded(random.next_u64()));
    }
    let client = client();

    let mut resolved_at_kills = Vec::new();
    for _ in 0..KILLS {
        crew.resolved_more_than(resolved_at_kills.last().copied().unwrap_or(0)).await;
        let pause = 600 + u64::try_from(random.below(800)).expect("small");
        tokio::time::sleep(Duration::from_millis(pause)).await;
        resolved_at_kills.push(crew.resolved());
        server.kill();
        server.restart().await;
    }
    let tally = crew.drain(&client).await;

    eprintln!("{tally:?}, resolved when killed: {resolved_at_kills:?}");
    assert!(tally.errors >= KILLS, "the kills were not noticed");
    let counts = client.judge(&["kill"]).await;
    assert_eq!(counts.get(&TaskStatus::Succeeded), Some(&tally.admitted), "{counts:?}");
    Ok(())
}

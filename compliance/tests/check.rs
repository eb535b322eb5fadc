//! The kit inside another program: [`check`] runs what its arguments say and counts it.

use rdq_compliance::{Fixture, Summary, cases, check, check_unless};
use rdq_memory::MemoryStorage;
use rdq_spi::{Capabilities, Durability, Storage};
use std::{collections::HashSet, sync::Arc};

struct Memory(MemoryStorage);

impl Fixture for Memory {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::None,
        notify: true,
        waiting_claims: true,
        filter_pushdown: true,
        batch_enqueue: true,
    };
    const THROUGH_ENGINE: bool = true;
    const ISOLATED: bool = false;

    async fn create() -> Self {
        Self(MemoryStorage::new())
    }

    async fn open(&self) -> Arc<dyn Storage> {
        Arc::new(self.0.clone())
    }
}

fn args(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

#[tokio::test]
async fn a_program_runs_some_cases_and_reads_the_counts() {
    let filtered_out = u64::try_from(cases::<Memory>().len()).expect("few") - 1;
    let one = |passed, ignored| Summary { passed, failed: 0, ignored, filtered_out };

    // Also from within a runtime, which the calling thread belongs to.
    let held = check::<Memory>(args(&["--exact", "claim::a_task_is_handed_out_once"]));
    assert_eq!(held, one(1, 0));
    let restart = check::<Memory>(args(&["--exact", "durable::everything_survives_a_restart"]));
    assert_eq!(restart, one(0, 1));
    let direct = check::<Memory>(args(&["--exact", "lease::no_heartbeat_reaches_beyond_held_max"]));
    assert_eq!(direct, one(0, 1), "what an engine decides is not asked through one");
    let nowhere = Some("there is none here".to_owned());
    let name = args(&["--exact", "claim::a_task_is_handed_out_once"]);
    assert_eq!(check_unless::<Memory>(nowhere, name), one(0, 1), "shown, not left out");
}

#[test]
fn every_case_has_its_own_name_and_every_rule_a_case() {
    let cases = cases::<Memory>();
    let names: HashSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len());
    let rules: HashSet<_> = cases.iter().map(|case| case.rule).collect();
    for rule in [
        "NoDoubleClaim",
        "Fencing",
        "GenerationsGrow",
        "LeaseRecoveryCounts",
        "AtomicTransitions",
        "IdempotentEnqueue",
        "LosslessRoundTrip",
        "RedriveResets",
        "StablePagination",
        "ReplaySafeResolution",
        "OrderedByPriorityThenDue",
        "StorageClock",
        "Durable",
        "Bounded",
    ] {
        assert!(rules.contains(rule), "{rule} has no case");
    }
}

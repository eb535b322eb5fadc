//! The checker of histories, checked: a correct system is never flagged, and each planted bug is
//! flagged in most histories, for the rule that it breaks. No storage is in play.

mod simulator;

use rdq_compliance::history::{Rule, check};
use simulator::{Bug, simulate};
use std::collections::HashMap;

const SEEDS: u64 = 50;

/// How many histories of a bug break which rule.
fn flagged(bug: Bug) -> (u64, HashMap<Rule, u64>) {
    let (mut histories, mut by_rule) = (0, HashMap::new());
    for seed in 0..SEEDS {
        let (history, truth) = simulate(seed, bug);
        let violations = check(&history, &truth);
        histories += u64::from(!violations.is_empty());
        let mut rules: Vec<_> = violations.iter().map(|violation| violation.rule).collect();
        rules.sort();
        rules.dedup();
        for rule in rules {
            *by_rule.entry(rule).or_default() += 1;
        }
    }
    (histories, by_rule)
}

#[test]
fn a_correct_system_is_never_flagged() {
    for seed in 0..4 * SEEDS {
        let (history, truth) = simulate(seed, Bug::None);
        let violations = check(&history, &truth);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
        let events = history.events();
        let unknown = events.iter().filter(|event| event.returned.is_none()).count();
        assert!(
            events.len() > 500 && unknown > 5,
            "a history worth its name: {history:?}, {unknown}"
        );
    }
}

#[test]
fn every_planted_bug_is_flagged_for_the_rule_that_it_breaks() {
    for (bug, rule) in [
        (Bug::TokensNotCompared, Rule::StaleAccepted),
        (Bug::LiveClaimsHandedOut, Rule::DoubleClaim),
        (Bug::HeartbeatsNotStored, Rule::DoubleClaim),
        (Bug::TwoClocks, Rule::Early),
        (Bug::AcknowledgedTasksDropped, Rule::Lost),
        (Bug::CompletionsForgotten, Rule::EndedTwice),
        (Bug::ClaimsBeforeDue, Rule::Early),
        (Bug::GenerationsRestart, Rule::Generation),
        (Bug::LapsesNotCounted, Rule::Attempts),
        (Bug::AttemptsUnbounded, Rule::Attempts),
        (Bug::TasksDoubled, Rule::Phantom),
        (Bug::StrictIgnored, Rule::LapsedAccepted),
        (Bug::AnythingReplays, Rule::EndedTwice),
        (Bug::CancelledTasksGoOn, Rule::EndedTwice),
    ] {
        let (histories, by_rule) = flagged(bug);
        let enough = SEEDS * 8 / 10;
        assert!(histories >= enough, "{bug:?}: {histories} of {SEEDS}");
        let right = by_rule.get(&rule).copied().unwrap_or(0);
        assert!(right >= enough, "{bug:?}: {rule:?} in {right} of {SEEDS}, all: {by_rule:?}");
    }
}

//! The kit, checked: a storage with one known mistake fails the case that is named for it, and the
//! same storage without one passes it. A bug found in any plugin adds a mistake here.

mod faulty;

use faulty::{FAULT, Fault, FaultyFixture};
use futures::FutureExt as _;
use rdq_compliance::{Case, cases};
use std::{collections::HashSet, panic::AssertUnwindSafe};

/// Each mistake, and the case that must see it.
#[rustfmt::skip] // A table: one mistake a line.
const MISTAKES: &[(Fault, &str)] = &[
    (Fault::AnyTokenWillDo, "resolve::a_stale_token_changes_nothing"),
    (Fault::StrictIgnored, "resolve::a_strict_token_is_stale_from_the_deadline_on"),
    (Fault::StrictIgnored, "lease::a_strict_heartbeat_after_the_lapse_is_stale"),
    (Fault::AlwaysStrict, "resolve::a_token_is_good_after_its_lease_until_the_reclaim"),
    (Fault::MissingIsStale, "resolve::a_missing_task_is_not_found"),
    (Fault::ReleaseSpends, "resolve::a_release_gives_the_attempt_out_again"),
    (Fault::LiveClaimsHandedOut, "claim::a_task_is_handed_out_once"),
    (Fault::ClaimsRepeatNowAndThen, "races::claimants_share_out_every_task_once"),
    (Fault::GenerationsRestart, "claim::generations_grow_over_purge_and_readmission"),
    (Fault::LapseNotRecorded, "lease::a_reclaim_appends_and_counts"),
    (Fault::LapseNotCounted, "lease::every_lapse_is_recorded"),
    (Fault::LeasesOnlyGrow, "lease::a_heartbeat_resets_the_lease_both_ways"),
    (Fault::UnsetClearsProgress, "lease::a_checkpoint_is_kept_replaced_and_cleared"),
    (Fault::HeldMaxIgnored, "lease::no_heartbeat_reaches_beyond_held_max"),
    (Fault::EveryClaimIsLive, "lease::live_claims_are_told_from_dead_ones"),
    (Fault::ReplaysForgotten, "replay::the_same_call_again_succeeds_and_changes_nothing"),
    (Fault::AnyCallReplays, "replay::another_call_with_a_spent_token_is_stale"),
    (Fault::FailDecidesAgain, "replay::a_repeated_fail_gets_what_was_decided_first"),
    (Fault::ReplaysOutliveTheClaim, "replay::the_memory_ends_with_the_next_claim"),
    (Fault::ConflictIgnored, "enqueue::an_id_of_another_queue_is_a_conflict"),
    (Fault::EnqueueOverwrites, "enqueue::a_repeated_id_is_the_same_task"),
    (Fault::EveryAdmissionCreates, "enqueue::one_of_fifty_concurrent_admissions_creates"),
    (Fault::CarriedOverDropped, "enqueue::what_is_carried_over_is_kept"),
    (Fault::SomeAdmissionsLost, "races::admissions_and_claims_at_once_lose_nothing"),
    (Fault::PriorityIgnored, "order::priority_then_due_then_admission"),
    (Fault::DueTimeIgnored, "order::priority_then_due_then_admission"),
    (Fault::NewestFirst, "order::a_batch_is_admitted_in_its_order"),
    (Fault::QueuesStarve, "order::a_full_queue_does_not_starve_another"),
    (Fault::EnvelopesAsText, "round_trip::every_answer_holds_what_was_sent"),
    (Fault::UnknownFieldsLost, "round_trip::every_answer_holds_what_was_sent"),
    (Fault::AttemptExtrasLost, "round_trip::what_a_worker_reports_comes_back"),
    (Fault::PageSkipsEqualInstants, "paging::entries_of_one_millisecond_are_told_apart"),
    (Fault::PageRepeatsItsEdge, "paging::entries_of_one_millisecond_are_told_apart"),
    (Fault::PageAdmitsNewer, "paging::arrivals_and_departures_disturb_nobody_else"),
    (Fault::AnyPositionWillDo, "paging::positions_that_nobody_minted_are_refused"),
    (Fault::RedriveKeepsTheCount, "dead_letter::a_redrive_resets_and_the_history_persists"),
    (Fault::RedriveDropsTheHistory, "dead_letter::a_redrive_resets_and_the_history_persists"),
    (Fault::RedriveStartsOver, "dead_letter::a_redrive_never_takes_what_died_again"),
    (Fault::StepsUnbounded, "dead_letter::steps_are_bounded_and_cover_all"),
    (Fault::DryRunActs, "dead_letter::a_dry_run_counts_and_changes_nothing"),
    (Fault::IdsMeanAll, "dead_letter::a_redrive_by_ids_takes_those_alone"),
    (Fault::IdsMeanAll, "dead_letter::a_purge_removes_and_frees_the_id"),
    (Fault::FiltersAsPrefixes, "dead_letter::a_filter_compares_exactly"),
    (Fault::LimitIgnored, "bounds::a_claim_is_bounded_in_items"),
    (Fault::BytesIgnored, "bounds::a_claim_is_bounded_in_bytes"),
    (Fault::BytesIgnored, "bounds::pages_are_bounded_in_bytes_and_go_on"),
    (Fault::ClaimsCarryEverything, "bounds::a_claim_carries_the_newest_attempts_lightly"),
    (Fault::NewestTextShedFirst, "history::the_oldest_text_is_shed_first"),
    (Fault::CancelOnlyAnswers, "cancel::a_pending_task_is_cancelled_without_a_record"),
    (Fault::CancelOnlyAnswers, "cancel::a_lapsed_task_is_cancelled_as_one_in_flight"),
    (Fault::DetailLost, "cancel::a_task_in_flight_is_taken_from_its_holder"),
    (Fault::DetailLost, "sweep::what_expires_in_flight_is_taken_from_its_holder"),
    (Fault::SweptTooEarly, "sweep::retention_removes_what_is_older_and_nothing_else"),
    (Fault::OwnRetentionIgnored, "sweep::a_dead_letters_own_retention_wins"),
    (Fault::StepsUnbounded, "sweep::expiry_goes_in_bounded_steps"),
    (Fault::LapsedCountedApart, "stats::every_status_is_counted"),
    (Fault::OneTooManyReady, "stats::counts_equal_the_truth_after_a_churn"),
    (Fault::HintsLost, "hints::one_comes_at_once_if_a_task_is_due"),
    (Fault::HintsLost, "hints::an_admission_is_heard_of"),
    (Fault::WaitersComeTooSoon, "waiting::one_gets_what_is_admitted"),
    (Fault::WaitersComeTooSoon, "waiting::one_gets_what_comes_back"),
    (Fault::WaitersStayBehind, "waiting::one_that_has_waited_enough_takes_nothing"),
    (Fault::WaitersStayBehind, "waiting::one_whose_caller_is_gone_keeps_nothing"),
    (Fault::NamesFolded, "names::queues_that_look_alike_are_apart"),
    (Fault::NamesTrimmed, "names::queues_that_look_alike_are_apart"),
    (Fault::SecondsOnly, "clock::instants_are_exact_from_year_1_to_9999"),
    (Fault::ConfigurationMerged, "queues::a_configuration_comes_back_and_is_replaced_whole"),
    (Fault::FullQueuesDeleted, "queues::a_queue_that_holds_a_task_is_not_deleted"),
    (Fault::OwnSecrets, "queues::every_server_gets_the_same_secret"),
    (Fault::CloseIgnored, "durable::a_closed_handle_says_so"),
    (Fault::DurabilityOverstated, "capabilities::they_are_what_the_fixture_claims"),
    (Fault::WakesLost, "signals::a_notification_wakes_who_listens"),
    (Fault::WakesLost, "streams::an_event_wakes_who_listens"),
    (Fault::OffsetsCountWhatIsThere, "streams::offsets_are_not_reused_after_a_trim"),
    (Fault::ReadsUnbounded, "streams::a_read_is_bounded_in_items_and_bytes"),
    (Fault::EventsAppearLate, "streams::readers_miss_nothing_of_concurrent_publishers"),
    (Fault::EventsAppearLate, "interactive::a_hundred_publishers_and_a_reader_that_misses_nothing"),
    (Fault::KeysAlwaysSet, "streams::keys_and_payloads_come_back_exactly"),
    (Fault::SavesGoBack, "streams::a_saved_offset_never_goes_back"),
    (Fault::TrimStopsShort, "streams::a_trim_removes_up_to_its_horizon_exactly"),
    (Fault::StepsUnbounded, "streams::a_trim_goes_in_bounded_steps"),
    (Fault::LocksShared, "locks::one_of_many_gets_the_lock"),
    (Fault::LocksShared, "locks::renewals_keep_it_among_those_who_want_it"),
    (Fault::TryingRenews, "locks::the_holder_gets_the_hold_that_it_has"),
    (Fault::LockGenerationsRestart, "locks::generations_grow_over_releases_and_lapses"),
    (Fault::LockGenerationsRestart, "locks::the_generation_fences_off_who_held_it_before"),
    (Fault::LocksShared, "locks::the_generation_fences_off_who_held_it_before"),
    (Fault::HoldsNotToldApart, "locks::a_hold_is_told_from_the_owners_earlier_ones"),
    (Fault::LapsedHoldsRenewed, "locks::a_hold_that_ended_is_over_and_free"),
    (Fault::AnybodyReleases, "locks::only_the_holder_renews_and_releases"),
    (Fault::RevisionsIgnored, "records::another_revision_is_a_conflict_and_changes_nothing"),
    (Fault::RevisionsIgnored, "records::one_of_many_concurrent_changes_wins"),
    (Fault::RevisionsRestart, "records::revisions_go_on_after_a_removal"),
    (Fault::PrefixesIgnored, "records::a_list_goes_by_key_and_prefix"),
    (Fault::PageAdmitsNewer, "records::arrivals_and_departures_disturb_no_list"),
    (Fault::AnyPositionWillDo, "records::positions_that_nobody_minted_are_refused"),
    (Fault::CommitsInParts, "commit::whichever_fails_nothing_happens"),
    (Fault::CommitsInParts, "commit::readers_never_see_a_part"),
    (Fault::CommitsInParts, "commit::a_stale_token_fails_the_whole"),
    (Fault::CommitsInParts, "commit::one_of_many_commits_on_a_revision_wins"),
    (Fault::CommitsInParts, "commit::transfers_keep_the_sum_and_their_journal"),
    (Fault::CommitsDoNotNotify, "commit::hints_and_wakes_come_after_it"),
    (Fault::OpenTransactionsLeak, "interactive::reads_see_what_it_wrote_and_nobody_else_does"),
    (Fault::OpenTransactionsLeak, "interactive::rolled_back_or_dropped_it_leaves_nothing"),
    (Fault::RefusalsLeaveAPart, "interactive::a_refused_operation_leaves_it_as_it_was"),
    (Fault::OwnWritesUnseen, "interactive::reads_see_what_it_wrote_and_nobody_else_does"),
    (Fault::RollbacksCommit, "interactive::rolled_back_or_dropped_it_leaves_nothing"),
    (Fault::MutationsForgotten, "ledger::a_repetition_gets_the_record_and_changes_nothing"),
    (Fault::MutationsForgotten, "ledger::a_rejected_one_is_recorded_and_repeated"),
    (Fault::MutationsRecordedLater, "ledger::of_a_hundred_concurrent_firsts_one_is_first"),
    (Fault::MutationsRecordedLater, "ledger::one_that_fails_leaves_the_place_to_another"),
    (Fault::MutationsRecordedLater, "ledger::a_first_observation_is_recorded_with_its_effects"),
    (Fault::MutationsRecordedSooner, "ledger::an_operation_that_fails_leaves_no_record"),
    (Fault::MutationsRecordedSooner, "ledger::dropped_calls_leave_record_and_effects_or_neither"),
    (Fault::RejectedOnesForgotten, "ledger::a_rejected_one_is_recorded_and_repeated"),
    (Fault::ConflictsTakeEffect, "ledger::whatever_differs_gets_the_record_and_changes_nothing"),
    (Fault::LatecomersSeeTheirOwn, "ledger::a_repetition_gets_the_record_and_changes_nothing"),
    (Fault::LatecomersSeeTheirOwn, "ledger::of_a_hundred_concurrent_firsts_one_is_first"),
    (Fault::ScopesFolded, "ledger::scopes_that_look_alike_are_apart"),
    (Fault::ResponsesAsText, "ledger::what_is_recorded_comes_back_exactly"),
    (Fault::AnswersForgotten, "ledger::a_first_observation_is_recorded_with_its_effects"),
    (Fault::PrunedTooEarly, "ledger::a_prune_removes_what_is_older_and_nothing_else"),
    (Fault::StepsUnbounded, "ledger::a_prune_goes_in_bounded_steps_the_oldest_first"),
    (Fault::RollbacksCommit, "ledger::it_is_part_of_its_transaction"),
    (Fault::RefusalsLeaveAPart, "ledger::a_repetition_leaves_its_transaction_as_it_was"),
    (Fault::OpenTransactionsLeak, "ledger::it_is_part_of_its_transaction"),
    (Fault::SignalsOverstated, "capabilities::faculties_are_what_the_fixture_claims"),
    (Fault::AnyTokenWillDo, "model::a_random_history_is_answered_by_the_rules"),
    (Fault::ReplaysForgotten, "model::a_random_history_is_answered_by_the_rules"),
    (Fault::NewestFirst, "model::a_random_history_is_answered_by_the_rules"),
];

/// So many cases at once.
const AT_ONCE: usize = 2;

/// A mistake that shows by chance is looked for in so many stories: always the same ones.
const SEEDS: u64 = 20;

/// Plays a case on a storage with this mistake. Whether it held. Time is the runtime's own, which
/// passes when everybody waits: no lease lapses because the machine is busy, and a hint that does not
/// come is waited for in no time.
fn holds(case: &Case, fault: Fault, seed: u64) -> bool {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let story = AssertUnwindSafe(case.run_seeded(seed)).catch_unwind();
    runtime.block_on(FAULT.scope(fault, story)).is_ok()
}

/// Plays these cases, some at once. Returns those that did not end as expected.
fn play(plays: &[(Fault, &'static str)], should_hold: bool) -> Vec<(Fault, &'static str)> {
    let cases = cases::<FaultyFixture>();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(&(fault, name)) =
                    plays.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let case = cases.iter().find(|case| case.name == name);
                    let case = case.unwrap_or_else(|| panic!("no case is called {name}"));
                    let mut seeds = 0..if should_hold { 1 } else { SEEDS };
                    if seeds.all(|seed| holds(case, fault, seed)) != should_hold {
                        wrong.lock().expect("no panic while it is held").push((fault, name));
                    }
                }
            });
        }
    });
    wrong.into_inner().expect("no panic while it is held")
}

/// Both directions in one test, so that the expected panics are silenced for nothing else.
#[test]
fn each_mistake_fails_its_case_and_none_fails_without_one() {
    let names: HashSet<_> = MISTAKES.iter().map(|(_, name)| *name).collect();
    let sound: Vec<_> = names.into_iter().map(|name| (Fault::None, name)).collect();
    assert_eq!(play(&sound, true), [], "cases that fail a sound storage");

    std::panic::set_hook(Box::new(|_| {})); // They are expected from here on.
    let unseen = play(MISTAKES, false);
    drop(std::panic::take_hook());
    assert_eq!(unseen, [], "mistakes that their cases do not see");
}

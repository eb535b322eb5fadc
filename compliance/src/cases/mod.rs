//! Every case of the kit, by area, and the list of them. A case draws its names and ids at random and
//! counts only what is its own; it stays within the defaults of a queue.

mod claim;
mod enqueue;
mod lease;
mod resolve;

use crate::{Case, Fixture};

/// What a case needs beyond a store. One that lacks it is shown as ignored, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing: every store, also through an engine.
    Store,
    /// No engine between: the case is about what an engine decides or hides.
    Direct,
}

impl Needs {
    fn lacking<F: Fixture>(self) -> Option<&'static str> {
        let (has, reason) = match self {
            Self::Store => (true, ""),
            Self::Direct => (!F::THROUGH_ENGINE, "an engine stands between"),
        };
        (!has).then_some(reason)
    }
}

/// A case by its function: its name is the function's path.
macro_rules! case {
    ($rule:literal, $needs:ident, $area:ident :: $story:ident) => {
        Case {
            rule: $rule,
            name: concat!(stringify!($area), "::", stringify!($story)),
            ignored: Needs::$needs.lacking::<F>(),
            story: Box::new(|| Box::pin(async { $area::$story(F::create().await).await })),
        }
    };
}

/// Every case. One left out of this list is dead code, which does not build.
pub(crate) fn all<F: Fixture>() -> Vec<Case> {
    vec![
        case!("IdempotentEnqueue", Store, enqueue::a_repeated_id_is_the_same_task),
        case!("NoDoubleClaim", Store, claim::a_task_is_handed_out_once),
        case!("NoPolicy", Direct, claim::a_task_with_spent_attempts_is_handed_out),
        case!("LeaseRecoveryCounts", Store, lease::a_reclaim_appends_and_counts),
        case!("Fencing", Store, resolve::a_stale_token_changes_nothing),
        case!("Fencing", Store, resolve::a_token_is_good_after_its_lease_until_the_reclaim),
    ]
}

//! The ledger: mutations by their scope, and by their age.

use crate::{admission::detach, state::State, undo::Undo};
use rdq_spi::{Applied, Mutation, MutationScope, NewMutation, PruneParams, Pruned, Timestamp};
use std::collections::{BTreeSet, HashMap};

/// Every mutation that is recorded.
#[derive(Debug, Default)]
pub(crate) struct Mutations {
    by_scope: HashMap<MutationScope, Mutation>,
    by_age: BTreeSet<(Timestamp, MutationScope)>,
}

impl Mutations {
    pub(crate) fn get(&self, scope: &MutationScope) -> Option<&Mutation> {
        self.by_scope.get(scope)
    }

    pub(crate) fn remove(&mut self, scope: &MutationScope) {
        if let Some(mutation) = self.by_scope.remove(scope) {
            self.by_age.remove(&(mutation.observed_at, mutation.first.scope));
        }
    }

    fn insert(&mut self, mutation: Mutation) {
        let scope = &mutation.first.scope;
        self.by_age.insert((mutation.observed_at, scope.clone()));
        self.by_scope.insert(scope.clone(), mutation);
    }
}

impl State {
    /// Records a mutation whose scope has no record, with what came of it.
    pub(crate) fn record_mutation(
        &mut self,
        mut first: NewMutation,
        answers: &[Applied],
        now: Timestamp,
    ) {
        detach(&mut first.eligibility_claim);
        detach(&mut first.response);
        self.undo.note(|| Undo::Mutation(first.scope.clone()));
        self.mutations.insert(Mutation { first, answers: answers.to_vec(), observed_at: now });
    }

    pub(crate) fn prune(&mut self, params: PruneParams, now: Timestamp) -> Pruned {
        let mut count = 0;
        while let Some((observed_at, scope)) = self.mutations.by_age.first()
            && observed_at.after(params.older_than) < now
        {
            if count == u64::from(params.limit) {
                return Pruned { count, more: true };
            }
            let scope = scope.clone();
            self.mutations.remove(&scope);
            count += 1;
        }
        Pruned { count, more: false }
    }
}

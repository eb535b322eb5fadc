//! The mistakes, by name. What each does is in `storage` and `memo`.

/// What is wrong with the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// A superseded token is as good as the newest.
    AnyTokenWillDo,
    /// Strict calls are taken as lenient ones.
    StrictIgnored,
    /// Lenient calls are taken as strict ones.
    AlwaysStrict,
    /// A missing task is answered as a stale claim.
    MissingIsStale,
    /// A release is recorded as an attempt.
    ReleaseSpends,
    /// Where nothing is due, the last claim is handed out again.
    LiveClaimsHandedOut,
    /// Every seventh claim call also answers the claims of the one before.
    ClaimsRepeatNowAndThen,
    /// Generations count from the admission.
    GenerationsRestart,
    /// A reclaim appends no record.
    LapseNotRecorded,
    /// A reclaim is not counted.
    LapseNotCounted,
    /// A heartbeat never shortens a lease.
    LeasesOnlyGrow,
    /// A heartbeat without a checkpoint clears it.
    UnsetClearsProgress,
    /// Heartbeats reach as far as they ask.
    HeldMaxIgnored,
    /// Every claim that was ever made is said to be live.
    EveryClaimIsLive,
    /// A repeated resolution is stale.
    ReplaysForgotten,
    /// Another resolution with a spent token is a repetition.
    AnyCallReplays,
    /// A repeated `Fail` is answered by what it asks now.
    FailDecidesAgain,
    /// A resolution is remembered beyond the next claim.
    ReplaysOutliveTheClaim,
    /// An id of another queue is taken for a repetition.
    ConflictIgnored,
    /// A repeated admission replaces the content.
    EnqueueOverwrites,
    /// A repeated admission says that it created.
    EveryAdmissionCreates,
    /// What is carried over is not stored.
    CarriedOverDropped,
    /// Every tenth admission is acknowledged and not stored.
    SomeAdmissionsLost,
    /// All priorities are alike.
    PriorityIgnored,
    /// What is due is due since its admission.
    DueTimeIgnored,
    /// Claims come in reverse.
    NewestFirst,
    /// The first queue that has anything is served alone.
    QueuesStarve,
    /// Envelopes are stored as text.
    EnvelopesAsText,
    /// Fields of the envelope that nobody knows are cut off.
    UnknownFieldsLost,
    /// Of an attempt, only known fields are stored.
    AttemptExtrasLost,
    /// A page begins at the millisecond after the last one.
    PageSkipsEqualInstants,
    /// A page begins with the last entry of the one before.
    PageRepeatsItsEdge,
    /// A later page shows the newest entry.
    PageAdmitsNewer,
    /// A bad position is the first page.
    AnyPositionWillDo,
    /// A redrive leaves the attempt count.
    RedriveKeepsTheCount,
    /// A redrive drops the history.
    RedriveDropsTheHistory,
    /// Every step of a redrive begins at the newest.
    RedriveStartsOver,
    /// The limit of a step is not looked at.
    StepsUnbounded,
    /// A dry run is a run.
    DryRunActs,
    /// A selection by ids takes everything.
    IdsMeanAll,
    /// Error types are compared by their beginning.
    FiltersAsPrefixes,
    /// A claim takes all there is.
    LimitIgnored,
    /// Sizes are not looked at.
    BytesIgnored,
    /// Claims carry whole histories.
    ClaimsCarryEverything,
    /// The newest stack goes first.
    NewestTextShedFirst,
    /// A cancellation is acknowledged and not done.
    CancelOnlyAnswers,
    /// A stale claim does not say why.
    DetailLost,
    /// Retention is not looked at.
    SweptTooEarly,
    /// A task's own retention is not stored.
    OwnRetentionIgnored,
    /// Lapsed claims do not count as in flight.
    LapsedCountedApart,
    /// A count is off by one.
    OneTooManyReady,
    /// No hint ever comes.
    HintsLost,
    /// No claim waits.
    WaitersComeTooSoon,
    /// Claims go on waiting for callers that are gone.
    WaitersStayBehind,
    /// Queue names are compared without case.
    NamesFolded,
    /// Queue names are trimmed.
    NamesTrimmed,
    /// Instants are stored in seconds.
    SecondsOnly,
    /// A configuration that is unset leaves the old one.
    ConfigurationMerged,
    /// A queue that holds tasks is deleted.
    FullQueuesDeleted,
    /// Every server gets the secret that it proposes.
    OwnSecrets,
    /// A closed handle goes on.
    CloseIgnored,
    /// The storage claims more than it is.
    DurabilityOverstated,
    /// Nobody who listens is woken.
    WakesLost,
    /// An event's offset is the number of events that are there.
    OffsetsCountWhatIsThere,
    /// Reads answer all that is there.
    ReadsUnbounded,
    /// Some events appear only after later ones were seen.
    EventsAppearLate,
    /// An unset key is shown as an empty one.
    KeysAlwaysSet,
    /// The last saved offset wins.
    SavesGoBack,
    /// A trim leaves the event at its horizon.
    TrimStopsShort,
    /// A lock that is held is had by the next one too.
    LocksShared,
    /// The holder's own try moves the end of its hold.
    TryingRenews,
    /// Each hold of a lock is its first.
    LockGenerationsRestart,
    /// An owner's holds are all alike.
    HoldsNotToldApart,
    /// A hold that ended is renewed if nobody came.
    LapsedHoldsRenewed,
    /// Whoever asks releases a lock.
    AnybodyReleases,
    /// A change applies whatever the revision.
    RevisionsIgnored,
    /// A record that is made again begins at revision 1.
    RevisionsRestart,
    /// A list of records shows all of them.
    PrefixesIgnored,
    /// The operations of a commit apply one after the other.
    CommitsInParts,
    /// A commit forgets its notifications.
    CommitsDoNotNotify,
    /// What an open transaction writes is there at once.
    OpenTransactionsLeak,
    /// Of operations that are refused together, those before the refused one stay.
    RefusalsLeaveAPart,
    /// A transaction reads what others see.
    OwnWritesUnseen,
    /// A rollback commits.
    RollbacksCommit,
    /// Signals are claimed, and missing.
    SignalsOverstated,
    /// Mutations are not recorded.
    MutationsForgotten,
    /// A mutation is recorded after its effects, on its own.
    MutationsRecordedLater,
    /// A mutation is recorded before its effects, on its own.
    MutationsRecordedSooner,
    /// Only accepted mutations are recorded.
    RejectedOnesForgotten,
    /// A request that differs from the recorded one takes effect.
    ConflictsTakeEffect,
    /// Who comes later is shown what they brought themselves.
    LatecomersSeeTheirOwn,
    /// Scopes are compared without case.
    ScopesFolded,
    /// Responses are stored as text.
    ResponsesAsText,
    /// The answers of a mutation's operations are not kept.
    AnswersForgotten,
    /// The age of mutations is not looked at.
    PrunedTooEarly,
}

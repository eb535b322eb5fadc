package io.rdq.client;

import static java.lang.System.Logger.Level.DEBUG;
import static java.lang.System.Logger.Level.ERROR;
import static java.lang.System.Logger.Level.INFO;
import static java.lang.System.Logger.Level.WARNING;

import com.google.protobuf.ByteString;
import io.grpc.Channel;
import io.grpc.Status;
import io.rdq.v1.ClaimDueRequest;
import io.rdq.v1.ClaimedTask;
import io.rdq.v1.ExtendLeaseResult;
import io.rdq.v1.HandlerVersionMismatch;
import io.rdq.v1.LostClaim;
import io.rdq.v1.ResolveResult;
import io.rdq.v1.WorkHeartbeatAck;
import io.rdq.v1.WorkOutcomeAck;
import io.rdq.v1.WorkResponse;
import io.rdq.v1.WorkStart;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * What a worker decides, on one thread: which claims it has, when their handlers start and stop,
 * what is sent, and when. Handlers and gRPC hand it what happened as events; after each lot of them
 * it looks at the clock, and sends what there is to send in as few messages as it can.
 */
final class WorkerLoop implements Runnable, Link.Listener, UnarySender.Listener {
  private static final System.Logger LOG = System.getLogger("io.rdq.client.Worker");

  /**
   * A stream that carried nothing for so long is dropped; the server sends something every 15 s.
   */
  private static final long SILENCE_MAX = Duration.ofSeconds(40).toNanos();

  private static final long CONNECT_AGAIN = Duration.ofSeconds(1).toNanos();
  private static final Duration RECONNECT_MAX = Duration.ofSeconds(10);

  /** How long a stopped worker waits, after its grace, for answers. */
  private static final long AFTER_GRACE = Duration.ofSeconds(5).toNanos();

  /**
   * How long one that has all answers waits for its stream's end, from when it last heard of it:
   * claims may be on their way still.
   */
  private static final long STREAM_END_MAX = Duration.ofSeconds(1).toNanos();

  /** How long a handler that is stopped after the grace may take to end. */
  private static final long STOPPING_MAX = Duration.ofSeconds(1).toNanos();

  private static final long HEARTBEAT_MIN = Duration.ofMillis(1).toNanos();
  private static final int CREDITS_MAX = 10_000;
  private static final long NEVER = Long.MAX_VALUE;

  private final Channel channel;
  private final WorkerSettings settings;
  private final Router router;
  private final UnarySender unary;
  private final LinkedBlockingQueue<Runnable> events = new LinkedBlockingQueue<>();
  private final long originNanos = System.nanoTime();

  /** Every delivery that is not over: its handler runs, or its outcome is not answered. */
  private final Map<ByteString, HeldClaim> claims = new HashMap<>();

  /** Of each task, the newest of these. */
  private final Map<String, HeldClaim> newest = new HashMap<>();

  /** What arrived while all handlers were busy. */
  private final Deque<HeldClaim> waiting = new ArrayDeque<>();

  private final TreeSet<HeldClaim> timers =
      new TreeSet<>(
          Comparator.comparingLong((HeldClaim claim) -> claim.wakeAtNanos)
              .thenComparingLong(claim -> claim.order));

  private final Outbox outbox = new Outbox();
  private final Set<HeldClaim> dueHeartbeats = new LinkedHashSet<>();
  private final Backoff reconnect = new Backoff(RECONNECT_MAX);

  private Link link;
  private long connectAtNanos;

  /** Whether the server is known to speak this client's contract. */
  private boolean isContractKnown;

  private volatile RdqException failure;
  private boolean follows;
  private int running;
  private long arrivals;
  private long actedNanos;
  private boolean serverDrains;
  private boolean isStopping;
  private long graceEndNanos = NEVER;
  private boolean isGraceOver;

  /** When what is left of a stop ends in any case. */
  private long lastEndNanos = NEVER;

  /** When a stopped worker first had all answers. */
  private long answeredNanos = NEVER;

  /** When such a one looks again whether its stream is to be waited for. */
  private long streamEndNanos = NEVER;

  WorkerLoop(Channel channel, WorkerSettings settings, Router router) {
    this.channel = channel;
    this.settings = settings;
    this.router = router;
    unary = new UnarySender(channel, this);
    follows = settings.receiving() == Worker.Receiving.CLAIM_DUE;
  }

  /** Has the loop drain and end. */
  void stop() {
    post(this::beginStop);
  }

  private void post(Runnable event) {
    events.add(event);
  }

  private long now() {
    return System.nanoTime() - originNanos;
  }

  @Override
  public void run() {
    List<Runnable> lot = new ArrayList<>();
    while (!isOver()) {
      guarded(this::act);
      try {
        Runnable first = events.poll(waitNanos(), TimeUnit.NANOSECONDS);
        if (first != null) {
          lot.add(first);
          events.drainTo(lot);
        }
      } catch (InterruptedException interrupted) {
        // Nobody but who holds this thread can do that, and it means what `stop` does.
        post(this::beginStop);
      }
      lot.forEach(this::guarded);
      lot.clear();
    }
    if (link != null) {
      link.cancel();
    }
    if (!outbox.isEmpty()) {
      LOG.log(
          WARNING,
          "stopped with {0} outcomes unanswered; their tasks are due again when leases end",
          outbox.size());
    }
  }

  /** A fault of ours ends neither the loop nor other claims. */
  private void guarded(Runnable step) {
    try {
      step.run();
    } catch (RuntimeException fault) {
      LOG.log(ERROR, "a fault of the rdq client", fault);
    }
  }

  /** Does what the time demands, then sends what there is. */
  private void act() {
    long now = now();
    actedNanos = now;
    while (!timers.isEmpty() && timers.first().wakeAtNanos <= now) {
      HeldClaim claim = timers.pollFirst();
      claim.wakeAtNanos = NEVER;
      wake(claim, now);
    }
    if (isStopping && !isGraceOver && now >= graceEndNanos) {
      endGrace();
    }
    if (link != null && now - link.heardNanos >= SILENCE_MAX) {
      LOG.log(WARNING, "nothing came for 40 s; connecting again");
      Link silent = link;
      drop(silent);
      silent.cancel();
    }
    startWaiting(now);
    if (link == null && !isStopping && now >= connectAtNanos) {
      connect(now);
    }
    send(now);
  }

  private long waitNanos() {
    // What may be sent already waits for an event: room in the stream, or the end of a call.
    long next =
        Math.min(
            outbox.nextNanos(actedNanos), timers.isEmpty() ? NEVER : timers.first().wakeAtNanos);
    if (isStopping) {
      next = Math.min(next, isGraceOver ? Math.min(lastEndNanos, streamEndNanos) : graceEndNanos);
    }
    if (link != null) {
      next = Math.min(next, link.heardNanos + SILENCE_MAX);
    } else if (!isStopping) {
      next = Math.min(next, connectAtNanos);
    }
    return Math.max(0, next - now());
  }

  // ---- Connecting ----

  private int freeHandlers() {
    return Math.max(0, settings.concurrency() - claims.size());
  }

  private void connect(long now) {
    connectAtNanos = now + CONNECT_AGAIN; // should this fail before there is a stream to end
    Calls.wakeUp(channel);
    if (!isContractKnown) {
      connectAtNanos = NEVER; // until this is answered
      unary.askContract();
      return;
    }
    openStream(now);
  }

  @Override
  public void contractIs(String version) {
    post(
        () -> {
          isContractKnown = true;
          connectAtNanos = now();
          OtherContractVersionException.of(version).ifPresent(this::giveUp);
        });
  }

  @Override
  public void contractUnknown(RdqException error) {
    post(
        () -> {
          if (isStopping) {
            return;
          }
          if (error.isRetryable()) {
            LOG.log(DEBUG, "the server does not answer: {0} {1}", error.code(), error.getMessage());
            connectAtNanos =
                now() + reconnect.nextNanos() + error.retryAfter().map(Times::nanos).orElse(0L);
          } else {
            // Something on the way that does not let this call through may well let the stream.
            connectAtNanos = now() + CONNECT_AGAIN;
            openStream(now());
          }
        });
  }

  private void giveUp(OtherContractVersionException error) {
    LOG.log(ERROR, "the worker stops: {0}", error.getMessage());
    failure = error;
    beginStop();
  }

  /** Why the worker cannot work; null if it can. */
  RdqException failure() {
    return failure;
  }

  private void openStream(long now) {
    if (follows) {
      ClaimDueRequest.Builder request =
          ClaimDueRequest.newBuilder()
              .addAllQueues(settings.queues())
              .setWorkerId(settings.workerId())
              .setFollow(true)
              .setLimit(Math.min(settings.concurrency(), 1_000))
              .setMaxInFlight(settings.concurrency());
      settings.lease().ifPresent(lease -> request.setLease(Times.proto(lease)));
      link = new Link.Follow(channel, request.build(), this);
    } else {
      WorkStart.Builder start =
          WorkStart.newBuilder().addAllQueues(settings.queues()).setWorkerId(settings.workerId());
      settings.lease().ifPresent(lease -> start.setLease(Times.proto(lease)));
      link = new Link.Work(channel, start.build(), freeHandlers(), this);
    }
    link.heardNanos = now;
    serverDrains = false;
  }

  @Override
  public void received(Link from, List<ClaimedTask> tasks, WorkResponse message) {
    long arrived = now();
    post(
        () -> {
          from.heardNanos = arrived;
          if (!from.isOpen) {
            from.isOpen = true;
            reconnect.reset();
          }
          if (from instanceof Link.Work work) {
            work.credits -= tasks.size();
            message.getOutcomeAcksList().forEach(ack -> acknowledged(work, ack));
            message.getHeartbeatAcksList().forEach(ack -> acknowledged(work, ack));
          }
          message.getLostList().forEach(this::lost);
          tasks.forEach(task -> guarded(() -> arrived(task, arrived)));
          if (message.getDraining() && from == link) {
            serverDrains = true;
          }
        });
  }

  @Override
  public void ready(Link of) {
    // Being woken is all it takes.
    post(() -> {});
  }

  @Override
  public void ended(Link which, Throwable error) {
    post(
        () -> {
          if (which != link) {
            return;
          }
          drop(which);
          if (error == null || isStopping) {
            return;
          }
          RdqException why = Errors.of(error);
          boolean isUnknown = why.code() == Status.Code.UNIMPLEMENTED;
          if (isUnknown
              && which instanceof Link.Work
              && settings.receiving() == Worker.Receiving.AUTOMATIC) {
            LOG.log(INFO, "the server does not know Work; going on with ClaimDue");
            follows = true;
            connectAtNanos = now();
            return;
          }
          connectAtNanos += why.retryAfter().map(Times::nanos).orElse(0L);
          System.Logger.Level level = why.isRetryable() || which.isOpen ? DEBUG : WARNING;
          LOG.log(
              level, "the stream ended, connecting again: {0} {1}", why.code(), why.getMessage());
        });
  }

  /** Has no stream any more; what it left unanswered is sent again. */
  private void drop(Link which) {
    link = null;
    connectAtNanos = now() + reconnect.nextNanos();
    if (which instanceof Link.Work work) {
      for (Delivery delivery : work.unanswered()) {
        delivery.isMaybeDone = true;
        outbox.add(delivery);
      }
      work.unanswered().clear();
      for (Heartbeat beat : work.unansweredHeartbeats()) {
        if (claims.containsKey(beat.claim().token) && beat.claim().heartbeatAtNanos != NEVER) {
          dueHeartbeats.add(beat.claim());
        }
      }
    }
  }

  // ---- Claims ----

  private void arrived(ClaimedTask task, long arrivedNanos) {
    HeldClaim claim = new HeldClaim(task, arrivedNanos, arrivals++);
    HeldClaim before = newest.get(claim.taskId());
    if (claims.containsKey(claim.token)
        || before != null && before.proto.getGeneration() > task.getGeneration()) {
      return; // a newer claim of it is here already
    }
    if (before != null) {
      lose(before, CancelReason.LOST);
    }
    claims.put(claim.token, claim);
    newest.put(claim.taskId(), claim);
    if (isStopping) {
      decide(claim, Outcome.release());
      return;
    }
    waiting.add(claim);
    setTimer(claim);
  }

  private void startWaiting(long now) {
    while (!waiting.isEmpty() && running < settings.concurrency()) {
      HeldClaim claim = waiting.poll();
      if (!claim.isDecided) {
        start(claim, now);
      }
    }
  }

  private void start(HeldClaim claim, long now) {
    if (now > claim.startByNanos) {
      LOG.log(INFO, "task {0} is given back: its lease is all but gone", claim.taskId());
      decide(claim, Outcome.release());
      return;
    }
    io.rdq.v1.Task task = claim.proto.getTask();
    boolean mustMatch =
        claim.proto.getVersionMismatch()
            == HandlerVersionMismatch.HANDLER_VERSION_MISMATCH_DEAD_LETTER;
    Router.Route route =
        router.route(
            task.getHandlerRef(),
            task.hasHandlerVersion() ? task.getHandlerVersion() : null,
            mustMatch);
    if (route.handler() == null) {
      decide(claim, route.refusal());
      return;
    }
    claim.isStarted = true;
    claim.handlerRuns = true;
    running++;
    setTimer(claim);
    try {
      settings
          .executor()
          .execute(
              new Execution(
                  claim,
                  route.handler(),
                  settings.mapper(),
                  outcome -> post(() -> handlerEnded(claim, outcome))));
    } catch (RejectedExecutionException refused) {
      LOG.log(WARNING, "the executor takes no handler; task {0} is given back", claim.taskId());
      handlerEnded(claim, Outcome.release());
    }
  }

  private void handlerEnded(HeldClaim claim, Outcome outcome) {
    claim.handlerRuns = false;
    running--;
    if (!claim.isDecided) {
      boolean wasStopped = claim.releaseAtNanos != NEVER;
      boolean counts =
          !wasStopped
              || outcome.kind == Outcome.Kind.COMPLETE
              || outcome.kind == Outcome.Kind.RELEASE;
      decide(claim, counts ? outcome : Outcome.release());
    }
    forgetIfOver(claim);
  }

  /** Says how a claim ends. What its handler does from here on has no effect. */
  private void decide(HeldClaim claim, Outcome outcome) {
    claim.isDecided = true;
    Delivery delivery = new Delivery(claim, Delivery.resolution(claim, outcome));
    claim.delivery = delivery;
    if (Outbox.sizeOf(delivery) > Outbox.BYTES_MAX) {
      substitute(delivery, "it is larger than a message may be");
    }
    if (claim.hasNewProgress()) {
      claim.isFlushing = true;
      dueHeartbeats.add(claim);
      claim.heartbeatAtNanos = now() + again(claim);
    } else {
      outbox.add(delivery);
    }
    setTimer(claim);
  }

  /** The claim is another's now, or nobody's. */
  private void lose(HeldClaim claim, CancelReason why) {
    claim.isDecided = true;
    claim.isFlushing = false;
    claim.cancel(why, settings.executor());
    if (claim.delivery != null && !outbox.isSent(claim.delivery)) {
      outbox.remove(claim.delivery);
      claim.delivery = null;
    }
    dueHeartbeats.remove(claim);
    claim.heartbeatAtNanos = NEVER;
    setTimer(claim);
    forgetIfOver(claim);
  }

  private void forgetIfOver(HeldClaim claim) {
    if (claim.handlerRuns || claim.delivery != null || !claim.isDecided) {
      return;
    }
    claims.remove(claim.token);
    newest.remove(claim.taskId(), claim);
    dueHeartbeats.remove(claim);
    timers.remove(claim);
  }

  private void lost(LostClaim lost) {
    HeldClaim claim = newest.get(lost.getId());
    if (claim == null || claim.proto.getGeneration() != lost.getGeneration()) {
      return;
    }
    LOG.log(INFO, "the claim of task {0} is over: {1}", lost.getId(), lost.getDetail());
    lose(claim, reason(lost.getDetail()));
  }

  private static CancelReason reason(String detail) {
    return switch (detail) {
      case "CANCELLED" -> CancelReason.CANCELLED;
      case "EXPIRED" -> CancelReason.EXPIRED;
      default -> CancelReason.LOST;
    };
  }

  // ---- Time ----

  private void setTimer(HeldClaim claim) {
    timers.remove(claim);
    long at = NEVER;
    if (claims.get(claim.token) == claim) {
      at = claim.isStarted || claim.isDecided ? claim.heartbeatAtNanos : claim.startByNanos + 1;
      if (claim.handlerRuns && !claim.isDecided) {
        at = Math.min(at, Math.min(claim.timeoutAtNanos, claim.releaseAtNanos));
      }
    }
    claim.wakeAtNanos = at;
    if (at != NEVER) {
      timers.add(claim);
    }
  }

  private void wake(HeldClaim claim, long now) {
    if (!claim.isStarted && !claim.isDecided) {
      waiting.remove(claim);
      start(claim, now); // and be given back
      return;
    }
    if (claim.handlerRuns && !claim.isDecided && now >= claim.timeoutAtNanos) {
      claim.cancel(CancelReason.TIMEOUT, settings.executor());
      decide(claim, Outcome.fail(Failure.TIMEOUT, "the queue's execution timeout is over"));
    }
    if (!claim.isDecided && now >= claim.releaseAtNanos) {
      LOG.log(WARNING, "the handler of task {0} does not stop; it is given back", claim.taskId());
      decide(claim, Outcome.release());
    }
    if (now >= claim.heartbeatAtNanos) {
      dueHeartbeats.add(claim);
      // Until it is answered.
      claim.heartbeatAtNanos = now + again(claim);
    }
    setTimer(claim);
  }

  /** After how long a heartbeat that has no answer is sent again. */
  private static long again(HeldClaim claim) {
    return Math.max(HEARTBEAT_MIN, claim.leaseNanos / 10);
  }

  // ---- Sending ----

  private void send(long now) {
    if (link instanceof Link.Work work && work.canSend()) {
      while (work.canSend()) {
        List<Delivery> deliveries = outbox.take(now);
        List<Heartbeat> beats = takeHeartbeats();
        int credits = 0;
        if (!isStopping && !serverDrains) {
          credits = Math.min(CREDITS_MAX, Math.max(0, freeHandlers() - work.credits));
        }
        if (deliveries.isEmpty() && beats.isEmpty() && credits == 0) {
          return;
        }
        work.send(deliveries, beats, credits);
      }
      return;
    }
    if (link instanceof Link.Work work && work.isOpen && !isStopping) {
      return; // it is full, and goes on in a moment
    }
    while (unary.canResolve()) {
      List<Delivery> deliveries = outbox.take(now);
      if (deliveries.isEmpty()) {
        break;
      }
      if (isStopping) {
        Calls.wakeUp(channel); // nobody connects any more, who else would
      }
      unary.resolve(deliveries);
    }
    while (unary.canExtend()) {
      List<Heartbeat> beats = takeHeartbeats();
      if (beats.isEmpty()) {
        break;
      }
      unary.extend(beats);
    }
  }

  private List<Heartbeat> takeHeartbeats() {
    List<Heartbeat> beats = new ArrayList<>();
    long bytes = 0;
    var due = dueHeartbeats.iterator();
    while (due.hasNext() && beats.size() < Outbox.ITEMS_MAX && bytes < Outbox.BYTES_MAX) {
      Heartbeat beat = due.next().heartbeat();
      beats.add(beat);
      bytes += beat.request().getSerializedSize();
      due.remove();
    }
    return beats;
  }

  // ---- Answers ----

  private void acknowledged(Link.Work by, WorkOutcomeAck ack) {
    Delivery delivery = by.outcome(ack.getSeq());
    if (delivery != null) {
      resolved(delivery, ack.getResult());
    }
  }

  private void acknowledged(Link.Work by, WorkHeartbeatAck ack) {
    Heartbeat beat = by.heartbeat(ack.getSeq());
    if (beat != null) {
      extended(beat, ack.getResult());
    }
  }

  @Override
  public void resolved(List<Delivery> deliveries, List<ResolveResult> results) {
    post(
        () -> {
          unary.resolveEnded();
          for (int i = 0; i < deliveries.size(); i++) {
            resolved(
                deliveries.get(i),
                i < results.size() ? results.get(i) : ResolveResult.getDefaultInstance());
          }
        });
  }

  @Override
  public void resolveFailed(List<Delivery> deliveries, RdqException error) {
    post(
        () -> {
          unary.resolveEnded();
          LOG.log(DEBUG, "outcomes have no answer: {0} {1}", error.code(), error.getMessage());
          deliveries.forEach(delivery -> unanswered(delivery, error));
        });
  }

  @Override
  public void extended(List<Heartbeat> beats, List<ExtendLeaseResult> results) {
    post(
        () -> {
          unary.extendEnded();
          for (int i = 0; i < beats.size(); i++) {
            extended(
                beats.get(i),
                i < results.size() ? results.get(i) : ExtendLeaseResult.getDefaultInstance());
          }
        });
  }

  @Override
  public void extendFailed(List<Heartbeat> beats, RdqException error) {
    post(
        () -> {
          unary.extendEnded();
          beats.forEach(beat -> unanswered(beat, error));
          LOG.log(DEBUG, "leases were not extended: {0} {1}", error.code(), error.getMessage());
        });
  }

  /**
   * A call failed as a whole, which says nothing of one outcome: it goes again. Alone, if the
   * request was at fault; what is refused for that alone is at fault itself.
   */
  private void unanswered(Delivery delivery, RdqException error) {
    boolean isOfRequest =
        error instanceof InvalidArgumentException
            || error instanceof MessageTooLargeException
            || error instanceof PayloadTooLargeException;
    if (isOfRequest && delivery.goesAlone) {
      refused(delivery, error);
      return;
    }
    delivery.goesAlone |= isOfRequest;
    sendLater(delivery, error);
  }

  /** A call failed as a whole: what it carried is sent again, unless that can never help. */
  private void unanswered(Heartbeat beat, RdqException error) {
    boolean isFinal =
        switch (error.code()) {
          case UNIMPLEMENTED, INVALID_ARGUMENT, PERMISSION_DENIED -> true;
          default -> error instanceof MessageTooLargeException;
        };
    if (isFinal) {
      notExtended(beat, error);
    } else {
      extendSoon(beat.claim(), error);
    }
  }

  /** An outcome does not wait a tenth of its lease until its progress is sent again. */
  private void extendSoon(HeldClaim claim, RdqException error) {
    if (claims.get(claim.token) == claim && claim.isFlushing) {
      claim.heartbeatAtNanos = now() + Calls.waitNanos(claim.flushBackoff, error.retryAfter());
      setTimer(claim);
    }
  }

  private void resolved(Delivery delivery, ResolveResult result) {
    switch (result.getOutcomeCase()) {
      case RESOLVED -> done(delivery);
      case ERROR -> refused(delivery, Errors.of(result.getError()));
      case OUTCOME_NOT_SET -> sendLater(delivery, Errors.missingResult());
    }
  }

  private void done(Delivery delivery) {
    outbox.answered(delivery);
    HeldClaim claim = delivery.claim;
    claim.delivery = null;
    claim.heartbeatAtNanos = NEVER;
    setTimer(claim);
    forgetIfOver(claim);
  }

  private void refused(Delivery delivery, RdqException error) {
    String task = delivery.claim.taskId();
    if (error.isRetryable()) {
      sendLater(delivery, error);
    } else if (error instanceof StaleClaimException) {
      LOG.log(INFO, "the claim of task {0} was lost; its outcome does not count", task);
      done(delivery);
    } else if (error.code() == Status.Code.NOT_FOUND) {
      if (!delivery.isMaybeDone) {
        LOG.log(INFO, "task {0} is gone; its outcome does not count", task);
      }
      done(delivery);
    } else if (!delivery.isSubstitute) {
      substitute(delivery, error.getMessage());
      outbox.add(delivery);
    } else {
      LOG.log(
          ERROR,
          "the failure of task {0} was refused; it is due again when its lease ends: {1} {2}",
          task,
          error.code(),
          error.getMessage());
      done(delivery);
    }
  }

  private void sendLater(Delivery delivery, RdqException error) {
    delivery.isMaybeDone |= error.outcomeUnknown();
    delivery.notBeforeNanos = now() + Calls.waitNanos(delivery.backoff, error.retryAfter());
    outbox.add(delivery);
  }

  /** Says instead of an outcome that is refused that it was. */
  private void substitute(Delivery delivery, String why) {
    LOG.log(WARNING, "the outcome of task {0} is refused: {1}", delivery.claim.taskId(), why);
    Outcome failure = Outcome.fail(Failure.OUTCOME_REFUSED, "the outcome was refused: " + why);
    delivery.resolution = Delivery.resolution(delivery.claim, failure);
    delivery.isSubstitute = true;
  }

  private void extended(Heartbeat beat, ExtendLeaseResult result) {
    if (result.getOutcomeCase() == ExtendLeaseResult.OutcomeCase.ERROR) {
      notExtended(beat, Errors.of(result.getError()));
      return;
    }
    if (result.getOutcomeCase() == ExtendLeaseResult.OutcomeCase.OUTCOME_NOT_SET) {
      unanswered(beat, Errors.missingResult());
      return;
    }
    HeldClaim claim = beat.claim();
    if (claims.get(claim.token) == claim && claim.heartbeatAtNanos != NEVER) {
      claim.heartbeatAtNanos = now() + Math.max(HEARTBEAT_MIN, claim.leaseNanos / 3);
      setTimer(claim);
    }
    progressDone(beat);
  }

  private void notExtended(Heartbeat beat, RdqException error) {
    HeldClaim claim = beat.claim();
    if (claims.get(claim.token) != claim) {
      return;
    }
    if (error instanceof StaleClaimException || error.code() == Status.Code.NOT_FOUND) {
      // Of a claim whose outcome was sent, that is what is to be expected.
      if (!claim.isDecided || claim.isFlushing) {
        LOG.log(INFO, "the claim of task {0} is lost: {1}", claim.taskId(), error.getMessage());
        lose(claim, reason(error.text("detail")));
      }
    } else if (!error.isRetryable()) {
      LOG.log(WARNING, "task {0} was not extended: {1}", claim.taskId(), error.getMessage());
      // Progress that is refused once is refused always.
      progressDone(beat);
    } else {
      extendSoon(claim, error);
    }
  }

  /** The progress of a heartbeat is settled; an outcome that waited for that goes. */
  private void progressDone(Heartbeat beat) {
    HeldClaim claim = beat.claim();
    claim.progressDone(beat.progressNumber());
    if (claim.isFlushing && !claim.hasNewProgress()) {
      claim.isFlushing = false;
      outbox.add(claim.delivery);
    }
  }

  // ---- Stopping ----

  private void beginStop() {
    if (isStopping) {
      return;
    }
    isStopping = true;
    graceEndNanos = saturatedAdd(now(), Times.nanos(settings.grace()));
    if (link != null) {
      link.stopClaiming();
    }
    List<HeldClaim> unstarted = new ArrayList<>(waiting);
    waiting.clear();
    for (HeldClaim claim : unstarted) {
      if (!claim.isDecided) {
        decide(claim, Outcome.release());
      }
    }
  }

  private void endGrace() {
    isGraceOver = true;
    lastEndNanos = saturatedAdd(graceEndNanos, AFTER_GRACE);
    for (HeldClaim claim : List.copyOf(claims.values())) {
      if (!claim.isDecided) {
        claim.cancel(CancelReason.SHUTDOWN, settings.executor());
        // Until then a success that it returns counts.
        claim.releaseAtNanos = saturatedAdd(graceEndNanos, STOPPING_MAX);
        setTimer(claim);
      }
    }
  }

  /** Whether a stopped worker has nothing to wait for any more. */
  private boolean isOver() {
    if (!isStopping) {
      return false;
    }
    streamEndNanos = NEVER;
    if (isGraceOver && now() >= lastEndNanos) {
      return true;
    }
    boolean isAnswered =
        claims.values().stream().allMatch(claim -> claim.isDecided && claim.delivery == null);
    boolean handlersEnded = running == 0 || isGraceOver;
    if (!isAnswered || !handlersEnded) {
      return false;
    }
    if (link == null) {
      return true;
    }
    // Nothing is left but what the server may still have on its way.
    isGraceOver = true;
    answeredNanos = Math.min(answeredNanos, now());
    long end = Math.max(answeredNanos, link.heardNanos) + STREAM_END_MAX;
    lastEndNanos = Math.min(lastEndNanos, answeredNanos + AFTER_GRACE);
    streamEndNanos = Math.min(lastEndNanos, end);
    return now() >= streamEndNanos;
  }

  private static long saturatedAdd(long a, long b) {
    return a > NEVER - b ? NEVER : a + b;
  }
}

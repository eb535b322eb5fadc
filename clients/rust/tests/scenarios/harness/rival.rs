//! Another claimant, of the bare contract: it claims and resolves by single calls, and keeps nothing.

use super::until;
use bytes::Bytes;
use rdq_client::Error;
use rdq_proto::v1::{self, task_service_client::TaskServiceClient};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// A claimant.
#[derive(Debug, Clone)]
pub(crate) struct Rival {
    calls: TaskServiceClient<Channel>,
}

/// What it claimed.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) id: String,
    pub(crate) token: Bytes,
    pub(crate) attempt_no: i32,
}

impl Rival {
    /// One of the server at this address.
    pub(crate) fn at(server: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{server}")).expect("an address");
        Self { calls: TaskServiceClient::new(endpoint.connect_lazy()) }
    }

    /// The generated client.
    pub(crate) fn calls(&self) -> TaskServiceClient<Channel> {
        self.calls.clone()
    }

    /// Claims one task, if one is due.
    pub(crate) async fn claim(&self, queue: &str, lease: Duration) -> Option<Claim> {
        let request = v1::ClaimDueRequest {
            queues: vec![queue.to_owned()],
            worker_id: "rival".to_owned(),
            lease: Some(rdq_proto::time::duration(lease)),
            ..v1::ClaimDueRequest::default()
        };
        let mut stream = self.calls().claim_due(request).await.expect("a claim").into_inner();
        let answer = stream.message().await.expect("an answer")?;
        let claim = answer.tasks.into_iter().next()?;
        let task = <v1::Task as prost::Message>::decode(claim.task).expect("a task");
        Some(Claim { id: task.id, token: claim.claim_token, attempt_no: claim.attempt_no })
    }

    /// Claims a task as soon as one is due.
    pub(crate) async fn claims(&self, queue: &str, lease: Duration) -> Claim {
        until("the rival claims", async || self.claim(queue, lease).await).await
    }

    /// Completes a claim.
    pub(crate) async fn complete(
        &self,
        claim: &Claim,
        result: impl Into<Bytes>,
    ) -> Result<(), Error> {
        let request = v1::CompleteRequest {
            id: claim.id.clone(),
            claim_token: claim.token.clone(),
            result: result.into(),
            ..v1::CompleteRequest::default()
        };
        self.calls().complete(request).await?;
        Ok(())
    }
}

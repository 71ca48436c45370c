//! `freehold.private.v1.StoreService`.

use futures::StreamExt as _;
use tonic::{Request, Response, Status, async_trait};

use super::{Answers, Service};
use crate::api::{
    ask::no_store,
    proto::private_v1::{
        BackupStoreChunk, BackupStoreRequest, StoreInfoRequest, StoreInfoResponse, VerifyStoreRequest,
        VerifyStoreResponse, store_service_server::StoreService,
    },
    wire,
};

#[async_trait]
impl StoreService for Service {
    async fn info(&self, _request: Request<StoreInfoRequest>) -> Result<Response<StoreInfoResponse>, Status> {
        let report = self.ask.store_report().await?;
        Ok(Response::new(wire::store::render(report)))
    }

    async fn verify(
        &self,
        _request: Request<VerifyStoreRequest>,
    ) -> Result<Response<VerifyStoreResponse>, Status> {
        let found = self.ask.verify_store().await?;
        Ok(Response::new(wire::store::render_verification(found)))
    }

    type BackupStream = Answers<BackupStoreChunk>;

    async fn backup(
        &self,
        _request: Request<BackupStoreRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let chunks = self.ask.back_up_store().await?.map(|chunk| match chunk {
            Ok(data) => Ok(BackupStoreChunk { data: data.to_vec() }),
            Err(error) => Err(no_store(error).status()),
        });
        Ok(Response::new(Box::pin(chunks)))
    }
}

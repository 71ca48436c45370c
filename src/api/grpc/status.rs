//! `freehold.v1.StatusService`.

use futures::StreamExt as _;
use tonic::{Request, Response, Status, async_trait};

use super::{Answers, Service};
use crate::api::{
    proto::v1::{
        GetStatusRequest, GetStatusResponse, WatchStatusRequest, WatchStatusResponse,
        status_service_server::StatusService,
    },
    wire,
};

#[async_trait]
impl StatusService for Service {
    async fn get(&self, _request: Request<GetStatusRequest>) -> Result<Response<GetStatusResponse>, Status> {
        let status = Some(wire::status::render(self.ask.status()));
        Ok(Response::new(GetStatusResponse { status }))
    }

    type WatchStream = Answers<WatchStatusResponse>;

    async fn watch(
        &self,
        _request: Request<WatchStatusRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let statuses = self.ask.watch_status().map(|status| {
            let status = Some(wire::status::render(status));
            Ok(WatchStatusResponse { status })
        });
        Ok(Response::new(Box::pin(statuses)))
    }
}

//! `freehold.v1.InventoryService`.

use tonic::{Request, Response, Status, async_trait};

use super::Service;
use crate::api::{
    proto::v1::{GetInventoryRequest, GetInventoryResponse, inventory_service_server::InventoryService},
    wire,
};

#[async_trait]
impl InventoryService for Service {
    async fn get(
        &self,
        _request: Request<GetInventoryRequest>,
    ) -> Result<Response<GetInventoryResponse>, Status> {
        let inventory = Some(wire::inventory::render(self.ask.inventory()));
        Ok(Response::new(GetInventoryResponse { inventory }))
    }
}

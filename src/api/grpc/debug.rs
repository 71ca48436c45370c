//! `freehold.private.v1.DebugService`.

use tonic::{Request, Response, Status, async_trait};

use super::Service;
use crate::api::{
    errors::ApiError,
    proto::private_v1::{
        AddFaultRequest, AddFaultResponse, ClearFaultsRequest, ClearFaultsResponse, ListActorsRequest,
        ListActorsResponse, ListFaultsRequest, ListFaultsResponse, ProvokeFaultRequest, ProvokeFaultResponse,
        RetryActorRequest, RetryActorResponse, debug_service_server::DebugService,
    },
    wire,
};

#[async_trait]
impl DebugService for Service {
    async fn list_actors(
        &self,
        request: Request<ListActorsRequest>,
    ) -> Result<Response<ListActorsResponse>, Status> {
        let ListActorsRequest { path, depth } = request.into_inner();
        let actor = Some(wire::actor::render(self.ask.actors(Some(&path), depth)?));
        Ok(Response::new(ListActorsResponse { actor }))
    }

    async fn retry_actor(
        &self,
        request: Request<RetryActorRequest>,
    ) -> Result<Response<RetryActorResponse>, Status> {
        self.ask.retry(&request.into_inner().path)?;
        Ok(Response::new(RetryActorResponse {}))
    }

    async fn provoke_fault(
        &self,
        request: Request<ProvokeFaultRequest>,
    ) -> Result<Response<ProvokeFaultResponse>, Status> {
        let ProvokeFaultRequest { path, kind } = request.into_inner();
        let fault = wire::actor::parse_provoked(&kind).map_err(ApiError::from)?;
        self.ask.provoke(&path, fault)?;
        Ok(Response::new(ProvokeFaultResponse {}))
    }

    async fn list_faults(
        &self,
        _request: Request<ListFaultsRequest>,
    ) -> Result<Response<ListFaultsResponse>, Status> {
        let faults = self.ask.faults()?.into_iter().map(wire::fault::render).collect();
        Ok(Response::new(ListFaultsResponse { faults }))
    }

    async fn add_fault(
        &self,
        request: Request<AddFaultRequest>,
    ) -> Result<Response<AddFaultResponse>, Status> {
        let fault = request
            .into_inner()
            .fault
            .ok_or_else(|| ApiError::invalid("fault", "fault is missing"))?;
        self.ask
            .add_fault(wire::fault::parse(fault).map_err(ApiError::from)?)?;
        Ok(Response::new(AddFaultResponse {}))
    }

    async fn clear_faults(
        &self,
        _request: Request<ClearFaultsRequest>,
    ) -> Result<Response<ClearFaultsResponse>, Status> {
        self.ask.clear_faults()?;
        Ok(Response::new(ClearFaultsResponse {}))
    }
}

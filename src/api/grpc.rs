//! The gRPC services. Handlers are parse → ask → render; who may call was decided at the gate.

mod access;
mod debug;
mod event;
mod inventory;
mod status;
mod store;

use std::pin::Pin;

use futures::{Stream, StreamExt as _};
use tonic::{Request, Status, service::Routes};
use tonic_health::{
    ServingStatus,
    server::{HealthReporter, HealthService},
};

use super::{
    access::{Caller, table},
    ask::Ask,
    errors::ApiError,
    proto::{
        self,
        private_v1::{
            access_service_server::AccessServiceServer, debug_service_server::DebugServiceServer,
            store_service_server::StoreServiceServer,
        },
        v1::{
            event_service_server::EventServiceServer, inventory_service_server::InventoryServiceServer,
            status_service_server::StatusServiceServer,
        },
    },
};
use crate::domain::access::Identity;

/// What a streaming handler answers with.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// One value of each service, over the same program.
#[derive(Clone, Debug)]
struct Service {
    ask: Ask,
}

/// All services behind one router.
///
/// # Errors
/// When the descriptors cannot be served by reflection.
pub(super) fn router(
    ask: Ask,
    health: HealthReporter,
    message_bytes: usize,
) -> Result<axum::Router, tonic_reflection::server::Error> {
    let service = Service { ask };
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let health =
        tonic_health::pb::health_server::HealthServer::new(HealthService::from_health_reporter(health))
            .max_decoding_message_size(message_bytes);
    let routes =
        Routes::new(StatusServiceServer::new(service.clone()).max_decoding_message_size(message_bytes))
            .add_service(EventServiceServer::new(service.clone()).max_decoding_message_size(message_bytes))
            .add_service(
                InventoryServiceServer::new(service.clone()).max_decoding_message_size(message_bytes),
            )
            .add_service(AccessServiceServer::new(service.clone()).max_decoding_message_size(message_bytes))
            .add_service(DebugServiceServer::new(service.clone()).max_decoding_message_size(message_bytes))
            .add_service(StoreServiceServer::new(service).max_decoding_message_size(message_bytes))
            .add_service(health)
            .add_service(reflection.max_decoding_message_size(message_bytes));
    Ok(routes.prepare().into_axum_router())
}

/// Lets health say what readiness is, for the whole and for each service.
pub(super) async fn report(health: &HealthReporter, ready: bool) {
    let status = if ready {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    };
    health.set_service_status("", status).await;
    for service in table::services() {
        health.set_service_status(service, status).await;
    }
}

/// Follows readiness; when the program says nothing more, nothing is served.
pub(super) async fn follow_readiness(ask: Ask, health: HealthReporter) {
    let mut statuses = ask.watch_status();
    let mut known = None;
    while let Some(status) = statuses.next().await {
        if known != Some(status.ready) {
            known = Some(status.ready);
            report(&health, status.ready).await;
        }
    }
    report(&health, false).await;
}

/// Who calls. The gate has put it there for every method that is not open to everybody.
fn caller<T>(request: &Request<T>) -> Result<Identity, Status> {
    request
        .extensions()
        .get::<Caller>()
        .map(|caller| caller.identity.clone())
        .ok_or_else(|| ApiError::Internal.status())
}

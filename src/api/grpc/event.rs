//! `freehold.v1.EventService`. The stream is pulled from the bus as the reader takes it, so a slow
//! reader holds up nobody but itself.

use futures::StreamExt as _;
use tonic::{Request, Response, Status, async_trait};

use super::{Answers, Service};
use crate::api::{
    proto::v1::{Event, WatchEventsRequest, event_service_server::EventService},
    wire,
};

#[async_trait]
impl EventService for Service {
    type WatchStream = Answers<Event>;

    async fn watch(
        &self,
        request: Request<WatchEventsRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let WatchEventsRequest { topics, after } = request.into_inner();
        let events = self.ask.events(topics, after)?;
        Ok(Response::new(Box::pin(
            events.map(|event| Ok(wire::event::render(event))),
        )))
    }
}

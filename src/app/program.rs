//! Bus and actors, whatever they run on: the real program and the tests on a paused clock share this.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{face::Face, upkeep::StoreUpkeep};
use crate::{
    actors::{
        guardian::{Child, Habitat, Happening, LostChild, SupervisionEvent},
        root::Root,
        runtimes::Runtimes,
        wiring::{Settings, Wiring},
    },
    bus::{ActorEvent, ActorEventKind, Bus},
    domain::{actor::ActorState, status::Recovery},
    ports::{
        binding::ClusterBinding,
        clock::Clock,
        cluster::Cluster,
        store::Store,
        telemetry::{Metrics, RestartLabels},
    },
    sim::faults::Faults,
};

/// What a program is made of.
#[derive(Debug)]
pub struct Ingredients {
    /// Where things run.
    pub runtimes: Runtimes,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Durable memory.
    pub store: Arc<dyn Store>,
    /// Which cluster it belongs to.
    pub binding: Arc<dyn ClusterBinding>,
    /// What can be done with the store from outside.
    pub upkeep: Option<Arc<dyn StoreUpkeep>>,
    /// The cluster that is sold from.
    pub cluster: Arc<dyn Cluster>,
    /// The faults of the embedded cluster, if it is that one.
    pub faults: Option<Faults>,
    /// What is counted.
    pub metrics: Metrics,
    /// What the configuration says.
    pub settings: Settings,
    /// Another one for each run, higher than all before.
    pub epoch: u64,
    /// What this start found.
    pub recovery: Recovery,
    /// Where chance starts.
    pub seed: u64,
}

/// A program that runs.
#[derive(Debug)]
pub struct Program {
    /// Itself, as its API sees it.
    pub face: Arc<Face>,
    root: Child<Root>,
    lost: mpsc::UnboundedReceiver<LostChild>,
}

impl Program {
    /// Makes the bus and starts the actors.
    #[must_use]
    pub fn start(ingredients: Ingredients) -> Self {
        let Ingredients {
            runtimes,
            clock,
            store,
            binding,
            upkeep,
            cluster,
            faults,
            metrics,
            ..
        } = ingredients;
        let bus = Bus::new(ingredients.epoch, Arc::clone(&clock));
        let wiring = Wiring {
            bus: bus.clone(),
            clock: Arc::clone(&clock),
            cluster,
            store,
            binding,
            metrics: metrics.clone(),
            settings: ingredients.settings,
            started_at: clock.wall(),
            recovery: ingredients.recovery,
        };
        // Generations of this run are above those of all runs before it.
        let first_generation = crate::bus::sequence::base_of_epoch(ingredients.epoch);
        let habitat = Habitat::new(
            runtimes,
            clock,
            first_generation,
            ingredients.seed,
            move |event| {
                tell_of(&event, &bus, &metrics);
            },
        );
        let face = Arc::new(Face::new(wiring.clone(), habitat.tree().clone(), upkeep, faults));
        let (root, lost) = habitat.start_root(move || Root::new(wiring.clone()));
        Self { face, root, lost }
    }

    /// Ends when the program can no longer be kept alive; says which actor was lost.
    pub async fn lost(&mut self) -> String {
        match self.lost.recv().await {
            Some(lost) => lost.path,
            None => std::future::pending().await,
        }
    }

    /// Stops the actors in reverse order of start.
    pub async fn stop(self) {
        self.root.stop().await;
    }
}

/// Counts and publishes what supervision did.
fn tell_of(event: &SupervisionEvent, bus: &Bus, metrics: &Metrics) {
    let (what, message) = match &event.what {
        Happening::Restarted => (ActorEventKind::Restarted, String::new()),
        Happening::Faulted { class, message, next } => {
            // Only what is followed by another incarnation is a restart.
            if *next == ActorState::Backoff {
                let cause = serde_json::to_value(class)
                    .ok()
                    .and_then(|class| class.as_str().map(str::to_owned));
                let labels = RestartLabels {
                    kind: event.kind.name().to_owned(),
                    cause: cause.unwrap_or_default(),
                };
                metrics.actor_restarts.get_or_create(&labels).inc();
            }
            let what = match next {
                ActorState::Failed => ActorEventKind::Quarantined,
                ActorState::Stopping => ActorEventKind::Escalated,
                ActorState::Starting | ActorState::Running | ActorState::Backoff => ActorEventKind::Faulted,
            };
            tracing::warn!(
                actor = event.path,
                ?class,
                ?what,
                reason = message,
                "an actor failed"
            );
            (what, message.clone())
        }
    };
    let told = ActorEvent {
        path: event.path.clone(),
        kind: event.kind.name().to_owned(),
        generation: event.generation,
        event: what,
        message,
    };
    bus.actors.publish(event.path.as_str(), told);
}

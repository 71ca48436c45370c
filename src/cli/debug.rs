//! `freehold debug`: faults of the embedded cluster, and faults provoked in actors.

use super::{
    Console,
    amounts::{known, span},
    arguments::{DebugAction, FaultAction, FaultArguments, Format},
    connection::Connection,
    failure::{Exit, Failure},
    table::Table,
};
use crate::{
    api::{
        proto::private_v1::{self, debug_service_client::DebugServiceClient},
        wire,
    },
    domain::api_fault::{ApiFault, ApiFaultKind},
};

pub async fn run(
    connection: &Connection,
    action: DebugAction,
    format: Format,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    match action {
        DebugAction::Retry { path } => {
            let request = private_v1::RetryActorRequest { path: path.clone() };
            let mut client = DebugServiceClient::new(connection.wire().await?);
            connection
                .answer(client.retry_actor(connection.request(request)))
                .await?;
            console.say(&format!(
                "{path} is tried again; look with `freehold actors {path}`"
            ));
        }
        DebugAction::Provoke { path, kind } => {
            wire::actor::parse_provoked(&kind)
                .map_err(|error| Failure::bad_input("--kind", error.to_string()))?;
            let request = private_v1::ProvokeFaultRequest {
                path: path.clone(),
                kind: kind.clone(),
            };
            let mut client = DebugServiceClient::new(connection.wire().await?);
            connection
                .answer(client.provoke_fault(connection.request(request)))
                .await?;
            console.say(&format!(
                "{kind} provoked in {path}; look with `freehold actors {path}`"
            ));
        }
        DebugAction::Faults {
            action: FaultAction::List,
        } => {
            let mut client = DebugServiceClient::new(connection.wire().await?);
            let call = client.list_faults(connection.request(private_v1::ListFaultsRequest {}));
            let faults = connection.answer(call).await?.faults;
            let faults: Vec<ApiFault> = faults
                .into_iter()
                .map(wire::fault::parse)
                .collect::<Result<_, _>>()?;
            console.show(format, &faults, |faults| table(faults))?;
        }
        DebugAction::Faults {
            action: FaultAction::Add(arguments),
        } => {
            let fault = fault(*arguments)?;
            let request = private_v1::AddFaultRequest {
                fault: Some(wire::fault::render(fault)),
            };
            let mut client = DebugServiceClient::new(connection.wire().await?);
            connection
                .answer(client.add_fault(connection.request(request)))
                .await?;
            console.say("fault added; `freehold debug faults clear` ends it");
        }
        DebugAction::Faults {
            action: FaultAction::Clear,
        } => {
            let mut client = DebugServiceClient::new(connection.wire().await?);
            let call = client.clear_faults(connection.request(private_v1::ClearFaultsRequest {}));
            connection.answer(call).await?;
            console.say("all faults are cleared");
        }
    }
    Ok(Exit::Done)
}

fn fault(arguments: FaultArguments) -> Result<ApiFault, Failure> {
    let kind = ApiFaultKind::named(&arguments.kind).ok_or_else(|| {
        let known: Vec<_> = ApiFaultKind::ALL.iter().map(|kind| kind.name()).collect();
        Failure::bad_input("--kind", format!("there is no fault {:?}", arguments.kind))
            .hint(format!("use one of {}", known.join(", ")))
    })?;
    if arguments.probability == 0.0 {
        return Err(Failure::bad_input(
            "--probability",
            "a fault that never happens is none",
        ));
    }
    let fault = ApiFault {
        verb: arguments.verb,
        resource: arguments.resource,
        namespace: arguments.namespace,
        kind,
        status: arguments.status,
        retry_after: arguments.retry_after,
        delay: arguments.delay,
        probability: arguments.probability,
        count: arguments.count,
    };
    fault
        .check()
        .map_err(|error| Failure::bad_input(&format!("--{}", error.field()), error.to_string()))?;
    Ok(fault)
}

fn table(faults: &[ApiFault]) -> String {
    let any = |text: &str| {
        if text.is_empty() {
            "any".to_owned()
        } else {
            text.to_owned()
        }
    };
    let mut table = Table::new([
        "KIND",
        "VERB",
        "RESOURCE",
        "NAMESPACE",
        "STATUS",
        "DELAY",
        "PROBABILITY",
        "LEFT",
    ]);
    for fault in faults {
        table.row([
            fault.kind.name().to_owned(),
            any(&fault.verb),
            any(&fault.resource),
            any(&fault.namespace),
            fault
                .status
                .map_or_else(|| "-".to_owned(), |status| status.to_string()),
            fault.delay.map_or_else(|| "-".to_owned(), span),
            fault.probability.to_string(),
            fault
                .count
                .map_or_else(|| "endless".to_owned(), |count| known(Some(count))),
        ]);
    }
    table.render()
}

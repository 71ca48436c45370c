//! Jobs: pods that run to their end, as often as wanted, with a limit on failures.

use std::time::Duration;

use serde_json::json;

use super::{
    World,
    document::{Key, at, condition, flag, integer, is_terminating, set, set_condition, set_entry, text},
    pods::{from_template, is_active, is_ready},
    resources::{JOBS, PODS},
    routes::Work,
};
use crate::sim::objects::{Deletion, Propagation};

/// Most pods of one Job at a time.
const MOST: i64 = 1000;

pub(super) fn reconcile(world: &mut World, key: &Key) {
    let Some(job) = world.get(&JOBS, key) else { return };
    if is_terminating(&job) {
        return;
    }
    let pods = world.pods_of(&job);
    let ended = |phase: &str| {
        i64::try_from(
            pods.iter()
                .filter(|pod| text(pod, "status.phase") == phase)
                .count(),
        )
        .unwrap_or(i64::MAX)
    };
    let (succeeded, failed) = (ended("Succeeded"), ended("Failed"));
    let active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).collect();
    if condition(&job, "Complete") == "True" || condition(&job, "Failed") == "True" {
        return expire(world, key, &job);
    }
    let parallelism = integer(&job, "spec.parallelism").unwrap_or(1).clamp(0, MOST);
    let completions = integer(&job, "spec.completions");
    let running = i64::try_from(active.len()).unwrap_or(i64::MAX);
    let complete = match completions {
        Some(wanted) => succeeded >= wanted,
        None => succeeded > 0 && running == 0,
    };
    let given_up = failed > integer(&job, "spec.backoffLimit").unwrap_or(6);
    if given_up || flag(&job, "spec.suspend") {
        for pod in &active {
            world.delete_pod(pod);
        }
    } else if !complete {
        let left = completions.map_or(if succeeded > 0 { 0 } else { parallelism }, |wanted| {
            wanted - succeeded
        });
        for _ in running..left.min(parallelism) {
            create_pod(world, &job);
        }
    }
    let now = world.now();
    let ready = active.iter().filter(|pod| is_ready(pod)).count();
    world.modify(&JOBS, key, |object| {
        if at(object, "status.startTime").is_none() {
            set(object, "status.startTime", json!(now));
        }
        for (field, number) in [("succeeded", succeeded), ("failed", failed), ("active", running)] {
            set(object, &format!("status.{field}"), json!(number));
        }
        set(object, "status.ready", json!(ready));
        if complete {
            set(object, "status.completionTime", json!(now));
            set_condition(
                object,
                "SuccessCriteriaMet",
                "True",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
                &now,
            );
            set_condition(
                object,
                "Complete",
                "True",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
                &now,
            );
        } else if given_up {
            set_condition(
                object,
                "FailureTarget",
                "True",
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
                &now,
            );
            set_condition(
                object,
                "Failed",
                "True",
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
                &now,
            );
        }
    });
}

fn create_pod(world: &World, job: &serde_json::Value) {
    let Some(template) = at(job, "spec.template") else {
        return;
    };
    let mut pod = from_template(job, "batch/v1", "Job", template);
    let name = text(job, "metadata.name");
    set(&mut pod, "metadata.generateName", json!(format!("{name}-")));
    for (key, value) in [
        ("batch.kubernetes.io/job-name", name),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", text(job, "metadata.uid")),
    ] {
        set_entry(&mut pod, "metadata.labels", key, json!(value));
    }
    world.create(&PODS, pod);
}

/// A finished Job goes away after its time to live.
fn expire(world: &mut World, key: &Key, job: &serde_json::Value) {
    let Some(seconds) = integer(job, "spec.ttlSecondsAfterFinished") else {
        return;
    };
    let kind = if condition(job, "Complete") == "True" {
        "Complete"
    } else {
        "Failed"
    };
    let since =
        super::document::find_condition(job, kind).map_or("", |done| text(done, "lastTransitionTime"));
    let wait = world
        .pace
        .scaled(Duration::from_secs(seconds.max(0).unsigned_abs()));
    let left = wait.saturating_sub(world.elapsed_since(since));
    if left.is_zero() {
        let deletion = Deletion {
            propagation: Some(Propagation::Background),
            ..Deletion::default()
        };
        world.delete(&JOBS, key, deletion);
    } else {
        world.later(left, Work::Job(key.clone()));
    }
}

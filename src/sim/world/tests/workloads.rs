//! Deployments, StatefulSets and Jobs.

use serde_json::json;

use super::*;
use crate::sim::{
    objects::{Deletion, Propagation},
    world::document::{condition, find_condition, integer, is_terminating, label},
};

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_its_pods_spread_over_the_nodes() {
    let life = Life::begin(3);
    life.create(&DEPLOYMENTS, deployment("web", 3, "web:1"));
    life.until("three ready pods", |life| life.ready_pods() == 3)
        .await;
    let mut nodes = nodes_of(&life.pods());
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "spread over all three");
    life.pass(1).await;
    let web = life.get(&DEPLOYMENTS, "web").unwrap();
    for field in [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
    ] {
        assert_eq!(integer(&web, &format!("status.{field}")), Some(3), "{field}");
    }
    assert_eq!(integer(&web, "status.observedGeneration"), Some(1));
    assert_eq!(condition(&web, "Available"), "True");
    assert_eq!(
        text(find_condition(&web, "Progressing").unwrap(), "reason"),
        "NewReplicaSetAvailable"
    );
    let pod = &life.pods()[0];
    assert_eq!(text(pod, "status.phase"), "Running");
    assert!(text(pod, "status.podIP").starts_with("10.128."));
    assert!(label(pod, "pod-template-hash").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_new_template_rolls_without_falling_below_the_minimum_or_above_the_surge() {
    let life = Life::begin(3);
    let mut web = deployment("web", 4, "web:1");
    web["spec"]["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    life.create(&DEPLOYMENTS, web);
    life.until("four ready pods", |life| life.ready_pods() == 4).await;
    life.change(&DEPLOYMENTS, "default", "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    });
    let (mut fewest, mut most) = (usize::MAX, 0);
    life.until("the roll", |life| {
        let pods = life.pods();
        let living = pods.iter().filter(|pod| !is_terminating(pod)).count();
        (fewest, most) = (fewest.min(life.ready_pods()), most.max(living));
        let rolled = pods
            .iter()
            .all(|pod| text(&pod["spec"]["containers"][0], "image") == "web:2");
        rolled && life.ready_pods() == 4 && pods.len() == 4
    })
    .await;
    assert!(fewest >= 3, "fell to {fewest} ready pods");
    assert!(most <= 5, "rose to {most} pods");
    let sets = life.objects.list(&REPLICA_SETS, Some("default")).items;
    assert_eq!(sets.len(), 2);
    assert_eq!(
        life.get(&DEPLOYMENTS, "web").unwrap()["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "2"
    );
    // Back to the first template: the old set is taken up again as revision 3.
    life.change(&DEPLOYMENTS, "default", "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:1");
    });
    life.until("the way back", |life| {
        let pods = life.pods();
        pods.len() == 4
            && life.ready_pods() == 4
            && pods
                .iter()
                .all(|pod| text(&pod["spec"]["containers"][0], "image") == "web:1")
    })
    .await;
    assert_eq!(life.objects.list(&REPLICA_SETS, Some("default")).items.len(), 2);
    assert_eq!(
        life.get(&DEPLOYMENTS, "web").unwrap()["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "3"
    );
}

#[tokio::test(start_paused = true)]
async fn a_roll_to_a_broken_image_keeps_the_old_pods_and_says_that_it_is_stuck() {
    let life = Life::begin(3);
    life.create(&DEPLOYMENTS, deployment("web", 4, "web:1"));
    life.until("four ready pods", |life| life.ready_pods() == 4).await;
    life.change(&DEPLOYMENTS, "default", "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("crash:2");
    });
    life.until("the deadline", |life| {
        let web = life.get(&DEPLOYMENTS, "web").unwrap();
        find_condition(&web, "Progressing")
            .is_some_and(|said| text(said, "reason") == "ProgressDeadlineExceeded")
    })
    .await;
    assert!(life.ready_pods() >= 3);
    let broken = life
        .pods()
        .into_iter()
        .find(|pod| pod["spec"]["containers"][0]["image"] == "crash:2")
        .unwrap();
    let status = &broken["status"]["containerStatuses"][0];
    assert_eq!(text(status, "state.waiting.reason"), "CrashLoopBackOff");
    assert!(integer(status, "restartCount").unwrap() > 3);
}

#[tokio::test(start_paused = true)]
async fn recreate_never_runs_two_templates_at_once() {
    let life = Life::begin(2);
    let mut web = deployment("web", 2, "web:1");
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    life.create(&DEPLOYMENTS, web);
    life.until("two ready pods", |life| life.ready_pods() == 2).await;
    life.change(&DEPLOYMENTS, "default", "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    });
    let mut together = false;
    life.until("the new ones", |life| {
        let pods = life.pods();
        let has = |image: &str| {
            pods.iter()
                .any(|pod| !is_terminating(pod) && pod["spec"]["containers"][0]["image"] == image)
        };
        together |= has("web:1") && has("web:2");
        has("web:2") && life.ready_pods() == 2
    })
    .await;
    assert!(!together);
}

#[tokio::test(start_paused = true)]
async fn scaling_down_and_deleting_a_deployment_leaves_nothing() {
    let life = Life::begin(2);
    life.create(&DEPLOYMENTS, deployment("web", 5, "web:1"));
    life.until("five ready pods", |life| life.ready_pods() == 5).await;
    life.change(&DEPLOYMENTS, "default", "web", |web| {
        web["spec"]["replicas"] = json!(2)
    });
    life.until("two pods", |life| life.pods().len() == 2).await;
    life.objects
        .delete(&DEPLOYMENTS, "default", "web", Deletion::default())
        .unwrap();
    life.until("no pods", |life| life.pods().is_empty()).await;
    assert!(life.objects.list(&REPLICA_SETS, Some("default")).items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_waits_for_the_pods_and_orphaning_leaves_them() {
    let life = Life::begin(2);
    life.create(&DEPLOYMENTS, deployment("web", 2, "web:1"));
    life.until("two ready pods", |life| life.ready_pods() == 2).await;
    let foreground = Deletion {
        propagation: Some(Propagation::Foreground),
        ..Deletion::default()
    };
    life.objects
        .delete(&DEPLOYMENTS, "default", "web", foreground)
        .unwrap();
    let mut owner_outlived = true;
    life.until("the deployment to go", |life| {
        let gone = life.get(&DEPLOYMENTS, "web").is_none();
        owner_outlived &= !gone || life.pods().is_empty();
        gone
    })
    .await;
    assert!(owner_outlived, "the owner went before its dependents");

    life.create(&DEPLOYMENTS, deployment("other", 1, "web:1"));
    life.until("a ready pod", |life| life.ready_pods() == 1).await;
    let orphan = Deletion {
        propagation: Some(Propagation::Orphan),
        ..Deletion::default()
    };
    life.objects
        .delete(&DEPLOYMENTS, "default", "other", orphan)
        .unwrap();
    life.until("the deployment to go", |life| {
        life.get(&DEPLOYMENTS, "other").is_none()
    })
    .await;
    life.pass(60).await;
    let sets = life.objects.list(&REPLICA_SETS, Some("default")).items;
    assert_eq!((sets.len(), life.ready_pods()), (1, 1));
    assert!(sets[0]["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_starts_in_order_with_a_claim_each_and_rolls_from_the_end() {
    let life = Life::begin(3);
    life.create(&STATEFUL_SETS, json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "db:1"),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "beta2",
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}}));
    let mut in_order = true;
    life.until("three ready pods", |life| {
        let names: Vec<String> = life.pods().iter().map(|pod| key(pod).name).collect();
        let before_ready = life.ready_pods() + 1;
        in_order &= names.len() <= before_ready;
        life.ready_pods() == 3
    })
    .await;
    assert!(in_order, "a pod came before the one below was ready");
    let claims = life.objects.list(&CLAIMS, Some("default")).items;
    let names: Vec<String> = claims.iter().map(|claim| key(claim).name).collect();
    assert_eq!(names, ["data-db-0", "data-db-1", "data-db-2"]);
    assert!(claims.iter().all(|claim| text(claim, "status.phase") == "Bound"));
    life.change(&STATEFUL_SETS, "default", "db", |db| {
        db["spec"]["template"]["spec"]["containers"][0]["image"] = json!("db:2");
    });
    life.until("the highest to be replaced first", |life| {
        life.get(&PODS, "db-2")
            .is_some_and(|pod| pod["spec"]["containers"][0]["image"] == "db:2")
    })
    .await;
    assert_eq!(
        life.get(&PODS, "db-0").unwrap()["spec"]["containers"][0]["image"],
        "db:1"
    );
    life.until("the roll", |life| {
        let db = life.get(&STATEFUL_SETS, "db").unwrap();
        db["status"]["currentRevision"] == db["status"]["updateRevision"]
            && db["status"]["readyReplicas"] == 3
            && db["status"]["updatedReplicas"] == 3
    })
    .await;
    life.change(&STATEFUL_SETS, "default", "db", |db| {
        db["spec"]["replicas"] = json!(1)
    });
    life.until("one pod", |life| life.pods().len() == 1).await;
    assert_eq!(key(&life.pods()[0]).name, "db-0");
    assert_eq!(
        life.objects.list(&CLAIMS, Some("default")).items.len(),
        3,
        "claims stay"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_completion_and_a_failing_one_gives_up() {
    let life = Life::begin(2);
    let job = |name: &str, image: &str| {
        let mut template = template(name, image);
        template["spec"]["restartPolicy"] = json!("Never");
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
            "spec": {"completions": 3, "parallelism": 2, "backoffLimit": 2, "template": template, "ttlSecondsAfterFinished": 600}})
    };
    life.create(&JOBS, job("good", "work:1"));
    life.create(&JOBS, job("bad", "fail/work:1"));
    life.until("the good one to complete", |life| {
        condition(&life.get(&JOBS, "good").unwrap(), "Complete") == "True"
    })
    .await;
    assert_eq!(
        integer(&life.get(&JOBS, "good").unwrap(), "status.succeeded"),
        Some(3)
    );
    life.until("the bad one to fail", |life| {
        condition(&life.get(&JOBS, "bad").unwrap(), "Failed") == "True"
    })
    .await;
    life.until("both to expire", |life| {
        life.objects.list(&JOBS, None).items.is_empty()
    })
    .await;
    life.until("their pods to go", |life| life.pods().is_empty())
        .await;
}

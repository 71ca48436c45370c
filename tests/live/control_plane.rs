//! A throw-away Kubernetes control plane on loopback: etcd, API server, and what else is asked for, in a temporary
//! directory. It ends when dropped, and also when this process fails or is killed (see `leash`).
//!
//! Its ports stay ours also while a server is down (see `reserved_port`).

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::{sync::OnceCell, time::Instant};

use super::{
    certificates::Authority,
    etcd,
    leash::Leashed,
    options::Options,
    programs::{Programs, testbed},
    reserved_port::ReservedPort,
};

/// How long anything may take to become ready: generous, for loaded machines.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    directory: PathBuf,
    authority: Authority,
    options: Options,
    programs: &'static Programs,
    etcd: ReservedPort,
    etcd_peers: ReservedPort,
    api: ReservedPort,
    processes: BTreeMap<&'static str, Leashed>,
}

const API_SERVER: &str = "kube-apiserver";

impl ControlPlane {
    /// The one shared by the tests of this run. Its tests use namespaces of their own, and cannot break it: what
    /// misbehaves needs a control plane of its own.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        // Never dropped: the leashes clean up when this process ends.
        SHARED
            .get_or_init(|| async {
                match Self::start(Options::full()).await {
                    Ok(plane) => plane,
                    Err(reason) => panic!("no control plane: {reason}"),
                }
            })
            .await
    }

    /// Starts one and waits until the API server answers.
    pub async fn start(options: Options) -> Result<Self, String> {
        let programs = Programs::get().await?;
        let directory = tempfile::Builder::new()
            .prefix("freehold-testbed-")
            .tempdir()
            .map_err(|error| format!("cannot make a temporary directory: {error}"))?
            .keep(); // from here on the leashes remove it
        let mut plane = Self {
            authority: Authority::new().map_err(|error| error.to_string())?,
            options,
            programs,
            etcd: ReservedPort::new().map_err(|error| format!("no free port: {error}"))?,
            etcd_peers: ReservedPort::new().map_err(|error| format!("no free port: {error}"))?,
            api: ReservedPort::new().map_err(|error| format!("no free port: {error}"))?,
            processes: BTreeMap::new(),
            directory,
        };
        // It never ends by itself, so that there is always one to remove the directory.
        plane.run("keeper", Path::new("sleep"), &["infinity".to_owned()])?;
        plane
            .write_files()
            .map_err(|error| format!("cannot write to {}: {error}", plane.directory.display()))?;
        plane.start_etcd()?;
        plane.start_api_server().await?;
        plane.start_controllers()?;
        plane.wait_for_controllers().await?;
        Ok(plane)
    }

    // ---- reaching it ------------------------------------------------------------------------------------------

    /// A kubeconfig of its first administrator (group `system:masters`).
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    /// A client of its first administrator. Belongs to the runtime that asks for it.
    pub async fn client(&self) -> kube::Client {
        client(&self.kubeconfig()).await
    }

    /// Where the API server listens.
    pub fn address(&self) -> SocketAddr {
        self.api.address
    }

    /// The authority that signed the API server's certificate.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where everything of it is: kubeconfigs, logs, the audit log.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of one of the testbed's programs, such as `kubectl`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.path(name)
    }

    /// Whether namespaces get their default ServiceAccount.
    pub fn has_controllers(&self) -> bool {
        self.options.controller_manager
    }

    /// The API server's audit log: one JSON object a line, without the control plane's own requests.
    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }

    /// Writes a kubeconfig for a bearer token, through another address if given (a proxy's).
    pub fn write_kubeconfig(
        &self,
        name: &str,
        token: &str,
        address: Option<SocketAddr>,
    ) -> io::Result<PathBuf> {
        use base64::Engine as _;
        let authority = base64::engine::general_purpose::STANDARD.encode(self.authority.certificate());
        let server = format!("https://{}", address.unwrap_or(self.api.address));
        // JSON is YAML too.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": "testbed", "user": name}}],
            "current-context": name,
        });
        let path = self.directory.join(format!("{name}.kubeconfig"));
        fs::write(&path, format!("{config:#}\n"))?;
        Ok(path)
    }

    // ---- misbehaviour: only for whoever owns it, hence `&mut self` ----------------------------------------------

    /// Kills the API server. Its port refuses connections until it is started again.
    pub async fn kill_api_server(&mut self) {
        if let Some(mut process) = self.processes.remove(API_SERVER) {
            process.kill().await;
        }
    }

    /// Stops the API server as an upgrade would: it finishes what it is doing.
    pub async fn stop_api_server(&mut self) {
        if let Some(mut process) = self.processes.remove(API_SERVER) {
            process.terminate().await;
        }
    }

    /// Starts the API server again, on the same port and the same etcd, and waits until it is ready.
    pub async fn start_api_server(&mut self) -> Result<(), String> {
        let arguments = self.api_server_arguments();
        self.run(API_SERVER, &self.programs.path(API_SERVER), &arguments)?;
        self.wait_until_ready().await
    }

    /// Throws away all past revisions in etcd, and tells the API server as one of its peers would. It notices
    /// within 15 s; what its watch cache still holds it goes on serving. For 410 now: `expire_history`.
    pub async fn compact(&mut self) -> Result<(), String> {
        etcd::compact(self.etcd.address)
            .await
            .map_err(|error| error.to_string())
    }

    /// Makes every resourceVersion and continue token handed out so far answer 410: compacts etcd and replaces the
    /// API server, whose cache then starts at the present.
    pub async fn expire_history(&mut self) -> Result<(), String> {
        self.kill_api_server().await;
        self.compact().await?;
        self.start_api_server().await
    }

    /// Kills one of the other processes: `etcd`, `kube-scheduler`, `kube-controller-manager`, `kwok`.
    pub async fn kill(&mut self, name: &str) {
        if let Some(mut process) = self.processes.remove(name) {
            process.kill().await;
        }
    }

    // ---- processes ----------------------------------------------------------------------------------------------

    fn run(&mut self, name: &'static str, program: &Path, arguments: &[String]) -> Result<(), String> {
        let process = Leashed::start(&self.directory, name, program, arguments)
            .map_err(|error| format!("cannot start {name} ({}): {error}", program.display()))?;
        self.processes.insert(name, process);
        Ok(())
    }

    /// Starts etcd (again, after `kill`), on what it had.
    pub fn start_etcd(&mut self) -> Result<(), String> {
        let clients = format!("http://{}", self.etcd.address);
        let peers = format!("http://{}", self.etcd_peers.address);
        let arguments = flags(&[
            ("data-dir", &self.file("etcd")),
            ("listen-client-urls", &clients),
            ("advertise-client-urls", &clients),
            ("listen-peer-urls", &peers),
            ("initial-advertise-peer-urls", &peers),
            ("initial-cluster", &format!("default={peers}")),
            ("socket-reuse-port", "true"),
            ("unsafe-no-fsync", "true"),
            ("log-level", "warn"),
        ]);
        self.run("etcd", &self.programs.path("etcd"), &arguments)
    }

    fn start_controllers(&mut self) -> Result<(), String> {
        if self.options.controller_manager {
            let grace = self.options.node_heartbeat * 4;
            let arguments = flags(&[
                ("kubeconfig", &self.file("kube-controller-manager.kubeconfig")),
                ("leader-elect", "false"),
                ("secure-port", "0"),
                ("use-service-account-credentials", "true"),
                ("service-account-private-key-file", &self.file("accounts.key")),
                ("root-ca-file", &self.file("ca.crt")),
                ("node-monitor-grace-period", &milliseconds(grace)),
                (
                    "node-monitor-period",
                    &milliseconds(grace.min(Duration::from_secs(20)) / 4),
                ),
                ("concurrent-gc-syncs", "10"),
                ("kube-api-qps", "200"),
                ("kube-api-burst", "400"),
            ]);
            self.run(
                "kube-controller-manager",
                &self.programs.path("kube-controller-manager"),
                &arguments,
            )?;
        }
        if self.options.scheduler {
            let arguments = flags(&[
                ("kubeconfig", &self.file("kube-scheduler.kubeconfig")),
                ("leader-elect", "false"),
                ("secure-port", "0"),
                ("kube-api-qps", "500"),
                ("kube-api-burst", "1000"),
            ]);
            self.run(
                "kube-scheduler",
                &self.programs.path("kube-scheduler"),
                &arguments,
            )?;
        }
        if self.options.kwok {
            let arguments = flags(&[
                ("kubeconfig", &self.file("kwok.kubeconfig")),
                ("config", &self.file("stages.yaml")),
                ("manage-all-nodes", "true"),
                ("node-ip", "127.0.0.1"),
                ("node-port", "0"),
                // Heartbeats are in the stages, where a test can silence them.
                ("node-lease-duration-seconds", "0"),
            ]);
            self.run("kwok", &self.programs.path("kwok"), &arguments)?;
        }
        Ok(())
    }

    fn api_server_arguments(&self) -> Vec<String> {
        let seconds = self.options.toleration_of_lost_nodes.as_secs().to_string();
        let mut arguments = flags(&[
            ("etcd-servers", &format!("http://{}", self.etcd.address)),
            ("bind-address", "127.0.0.1"),
            ("advertise-address", "127.0.0.1"),
            ("secure-port", &self.api.address.port().to_string()),
            ("permit-port-sharing", "true"),
            // The Service `kubernetes` may not point at loopback: nobody is to try.
            ("endpoint-reconciler-type", "none"),
            ("tls-cert-file", &self.file("server.crt")),
            ("tls-private-key-file", &self.file("server.key")),
            ("authorization-mode", "RBAC"),
            ("token-auth-file", &self.file("tokens.csv")),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc.cluster.local",
            ),
            ("service-account-key-file", &self.file("accounts.pub")),
            ("service-account-signing-key-file", &self.file("accounts.key")),
            // Loopback, so that a test's server can listen on the ClusterIP of its Service.
            ("service-cluster-ip-range", "127.100.0.0/16"),
            ("allow-privileged", "true"),
            ("default-not-ready-toleration-seconds", &seconds),
            ("default-unreachable-toleration-seconds", &seconds),
            ("audit-policy-file", &self.file("audit.yaml")),
            ("audit-log-path", &self.file("audit.log")),
            ("audit-log-maxsize", "10000"),
            ("profiling", "false"),
        ]);
        arguments.extend(self.options.api_server_arguments.iter().cloned());
        arguments
    }

    async fn wait_until_ready(&mut self) -> Result<(), String> {
        let client = self.client().await;
        self.wait_for("the API server is ready", async || is_ready(&client).await)
            .await
    }

    /// The controller-manager works when the first namespace has its account; the others must at least live.
    async fn wait_for_controllers(&mut self) -> Result<(), String> {
        if self.options.controller_manager {
            let accounts = Api::<ServiceAccount>::namespaced(self.client().await, "default");
            self.wait_for("namespaces get their accounts", async || {
                matches!(accounts.get_opt("default").await, Ok(Some(_)))
            })
            .await?;
        }
        Ok(())
    }

    /// Asks until it is so; an error as soon as one of the processes has ended.
    async fn wait_for(&mut self, what: &str, so: impl AsyncFn() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let so = so().await;
            for process in self.processes.values_mut() {
                if process.ended().is_some() {
                    return Err(process.epitaph());
                }
            }
            if so {
                return Ok(());
            }
            if Instant::now() > deadline {
                let logs: Vec<String> = self.processes.values_mut().map(Leashed::epitaph).collect();
                return Err(format!("not after {PATIENCE:?}: {what}\n{}", logs.join("\n")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    // ---- files --------------------------------------------------------------------------------------------------

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn write_files(&self) -> io::Result<()> {
        let failed = |error: rcgen::Error| io::Error::other(error);
        let write = |name: &str, text: &str| fs::write(self.directory.join(name), text);
        let server = self.authority.server().map_err(failed)?;
        let accounts = rcgen::KeyPair::generate().map_err(failed)?;
        write("ca.crt", self.authority.certificate())?;
        write("server.crt", &server.certificate)?;
        write("server.key", &server.key.serialize_pem())?;
        write("accounts.key", &accounts.serialize_pem())?;
        write("accounts.pub", &accounts.public_key_pem())?;
        write("audit.yaml", AUDIT_POLICY)?;

        let stages = fs::read_to_string(testbed().join("stages.yaml"))?;
        let heartbeat = self.options.node_heartbeat.as_millis().to_string();
        write(
            "stages.yaml",
            &stages.replace("HEARTBEAT\n", &format!("{heartbeat}\n")),
        )?;

        // Who comes in by a fixed token: file name, user, group.
        let mut tokens = String::new();
        for (name, user, group) in [
            ("admin", "admin", "system:masters"),
            ("kwok", "kwok", "system:masters"),
            ("kube-scheduler", "system:kube-scheduler", ""),
            ("kube-controller-manager", "system:kube-controller-manager", ""),
        ] {
            let token = uuid::Uuid::now_v7().simple().to_string();
            let _ = match group {
                "" => writeln!(tokens, "{token},{user},{user}"),
                group => writeln!(tokens, "{token},{user},{user},{group}"),
            };
            self.write_kubeconfig(name, &token, None)?;
        }
        write("tokens.csv", &tokens)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // All at once; then each is waited for as it is dropped.
        for process in self.processes.values_mut() {
            process.release();
        }
    }
}

/// A client for a kubeconfig. Belongs to the runtime that asks for it.
pub async fn client(kubeconfig: &Path) -> kube::Client {
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig of ours");
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .expect("a kubeconfig of ours");
    kube::Client::try_from(config).expect("a kubeconfig of ours")
}

async fn is_ready(client: &kube::Client) -> bool {
    let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
    let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
    matches!(answer, Ok(Ok(text)) if text == "ok")
}

fn flags(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// Who asked for what, without bodies, and without the control plane's own chatter.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [kwok, 'system:kube-scheduler', 'system:kube-controller-manager', 'system:apiserver', 'system:anonymous']
- level: None
  userGroups: ['system:serviceaccounts:kube-system']
- level: Metadata
";

//! `process_*`: what the operating system says of this process, read from /proc at every scrape. Where
//! there is no /proc the lines are left out.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// Linux counts in hundredths of a second towards user space on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads /proc at every scrape.
#[derive(Debug)]
pub struct ProcessCollector;

/// What /proc says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Process {
    cpu_seconds: Option<f64>,
    start_time_seconds: Option<f64>,
    resident_bytes: Option<i64>,
    virtual_bytes: Option<i64>,
    threads: Option<i64>,
    open_fds: Option<i64>,
    max_fds: Option<i64>,
}

impl Process {
    fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let open_fds = std::fs::read_dir("/proc/self/fd")
            .ok()
            .and_then(|entries| i64::try_from(entries.count()).ok());
        Self {
            open_fds,
            ..Self::parse(
                &text("/proc/self/stat"),
                &text("/proc/self/status"),
                &text("/proc/self/limits"),
                &text("/proc/stat"),
            )
        }
    }

    fn parse(stat: &str, status: &str, limits: &str, system: &str) -> Self {
        // The name in parentheses may hold anything, so fields are counted from behind it.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().collect())
            .unwrap_or_default();
        let ticks = |index: usize| {
            fields
                .get(index)
                .and_then(|field| field.parse::<f64>().ok())
                .map(|ticks| ticks / TICKS_PER_SECOND)
        };
        let after = |text: &str, name: &str| -> Option<i64> {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.strip_prefix(name)?.split_whitespace().next()?.parse().ok()
        };
        let kibibytes = |name| after(status, name).and_then(|count: i64| count.checked_mul(1024));
        let boot = system
            .lines()
            .find_map(|line| line.strip_prefix("btime "))
            .and_then(|seconds| seconds.trim().parse::<f64>().ok());
        Self {
            cpu_seconds: ticks(11).zip(ticks(12)).map(|(user, system)| user + system),
            start_time_seconds: ticks(19).zip(boot).map(|(since, boot)| since + boot),
            resident_bytes: kibibytes("VmRSS:"),
            virtual_bytes: kibibytes("VmSize:"),
            threads: after(status, "Threads:"),
            open_fds: None,
            max_fds: after(limits, "Max open files"),
        }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let process = Process::read();
        if let Some(seconds) = process.cpu_seconds {
            let counter = ConstCounter::new(seconds);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                "Processor time used",
                None,
                kind,
            )?)?;
        }
        if let Some(seconds) = process.start_time_seconds {
            let gauge = ConstGauge::new(seconds);
            let kind = gauge.metric_type();
            gauge.encode(encoder.encode_descriptor(
                "process_start_time_seconds",
                "When it started, since the epoch",
                None,
                kind,
            )?)?;
        }
        for (name, help, value) in [
            (
                "process_resident_memory_bytes",
                "Memory in use",
                process.resident_bytes,
            ),
            (
                "process_virtual_memory_bytes",
                "Address space in use",
                process.virtual_bytes,
            ),
            ("process_threads", "Threads", process.threads),
            ("process_open_fds", "Open file descriptors", process.open_fds),
            ("process_max_fds", "Most file descriptors", process.max_fds),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                let kind = gauge.metric_type();
                gauge.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read_even_when_the_process_has_an_odd_name() {
        let process = Process::parse(
            "42 (a ) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 7 0 1000 9 9",
            "Name:\tx\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t7\n",
            "Limit Soft\nMax open files            1024                 4096                 files\n",
            "cpu 1 2 3\nbtime 1700000000\n",
        );
        assert_eq!(
            process,
            Process {
                cpu_seconds: Some(3.0),
                start_time_seconds: Some(1_700_000_010.0),
                resident_bytes: Some(1_048_576),
                virtual_bytes: Some(2_097_152),
                threads: Some(7),
                open_fds: None,
                max_fds: Some(1024),
            }
        );
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        assert_eq!(Process::parse("", "", "", ""), Process::default());
    }
}

//! The store's reports.

use crate::{
    api::proto::private_v1,
    domain::store_report::{StoreReport, StoreVerification},
};

/// Domain → wire.
#[must_use]
pub fn render(report: StoreReport) -> private_v1::StoreInfoResponse {
    private_v1::StoreInfoResponse {
        path: report.path,
        format: report.format,
        bytes: report.bytes,
        free_bytes: report.free_bytes,
        records: report.records,
        records_by_kind: report.records_by_kind.into_iter().collect(),
        healthy: report.healthy,
        cluster_uid: report.cluster_uid,
        epoch: report.epoch,
    }
}

/// Wire → domain.
#[must_use]
pub fn parse(report: private_v1::StoreInfoResponse) -> StoreReport {
    StoreReport {
        path: report.path,
        format: report.format,
        bytes: report.bytes,
        free_bytes: report.free_bytes,
        records: report.records,
        records_by_kind: report.records_by_kind.into_iter().collect(),
        healthy: report.healthy,
        cluster_uid: report.cluster_uid,
        epoch: report.epoch,
    }
}

/// Domain → wire.
#[must_use]
pub fn render_verification(found: StoreVerification) -> private_v1::VerifyStoreResponse {
    private_v1::VerifyStoreResponse {
        records: found.records,
        problems: found.problems,
    }
}

/// Wire → domain.
#[must_use]
pub fn parse_verification(found: private_v1::VerifyStoreResponse) -> StoreVerification {
    StoreVerification {
        records: found.records,
        problems: found.problems,
    }
}

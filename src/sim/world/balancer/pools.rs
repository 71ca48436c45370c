//! An IPAddressPool: ranges of addresses, and the Services it is meant for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::sim::world::document::{Key, at, flag, integer, list, selects, text};

/// A pool.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) key: Key,
    ranges: Vec<Range>,
    pub(super) auto_assign: bool,
    avoid_buggy: bool,
    /// The smaller the sooner; a pool that says nothing comes last.
    pub(super) priority: i64,
    /// Whether the pool is meant for some Services only.
    pub(super) is_pinned: bool,
    object: Value,
}

/// Addresses from `first` to `last`, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    v6: bool,
    first: u128,
    last: u128,
}

impl Pool {
    pub(super) fn parse(object: &Value) -> Self {
        let allocation = at(object, "spec.serviceAllocation");
        let priority = integer(object, "spec.serviceAllocation.priority").unwrap_or(0);
        let texts = list(object, "spec.addresses").iter().filter_map(Value::as_str);
        Self {
            key: Key::of(object),
            ranges: texts.filter_map(Range::parse).collect(),
            auto_assign: at(object, "spec.autoAssign")
                .and_then(Value::as_bool)
                .unwrap_or(true),
            avoid_buggy: flag(object, "spec.avoidBuggyIPs"),
            priority: if priority <= 0 { i64::MAX } else { priority },
            is_pinned: allocation.is_some_and(Value::is_object),
            object: object.clone(),
        }
    }

    /// Whether an address is of this pool, usable or not.
    pub(super) fn holds(&self, address: IpAddr) -> bool {
        let (v6, number) = numbered(address);
        self.ranges
            .iter()
            .any(|range| range.v6 == v6 && (range.first..=range.last).contains(&number))
    }

    /// Whether the pool may give this address.
    pub(super) fn may_give(&self, address: IpAddr) -> bool {
        self.holds(address) && !(self.avoid_buggy && is_buggy(address))
    }

    /// The usable addresses of a family, lowest first.
    pub(super) fn candidates(&self, v6: bool) -> impl Iterator<Item = IpAddr> {
        let ranges = self.ranges.iter().filter(move |range| range.v6 == v6);
        ranges
            .flat_map(move |range| (range.first..=range.last).map(move |number| address(v6, number)))
            .filter(|address| !(self.avoid_buggy && is_buggy(*address)))
    }

    /// How many addresses of a family there are.
    pub(super) fn size(&self, v6: bool) -> i64 {
        let ranges = self.ranges.iter().filter(|range| range.v6 == v6);
        let all = ranges.map(|range| range.last.saturating_sub(range.first).saturating_add(1));
        let total = all.fold(0_u128, u128::saturating_add);
        // Two of 256 are not given out; a count of each would cost too much in a large IPv6 pool.
        let buggy = if self.avoid_buggy && !v6 {
            self.count_buggy()
        } else {
            0
        };
        i64::try_from(total).unwrap_or(i64::MAX).saturating_sub(buggy)
    }

    fn count_buggy(&self) -> i64 {
        let v4 = self
            .ranges
            .iter()
            .filter(|range| !range.v6 && range.last - range.first < 1 << 20);
        let buggy = v4
            .flat_map(|range| range.first..=range.last)
            .filter(|number| is_buggy(address(false, *number)));
        i64::try_from(buggy.count()).unwrap_or(i64::MAX)
    }

    /// Whether the pool is meant for a Service of this namespace.
    pub(super) fn is_for(&self, service: &Value, namespace: &str, namespace_object: Option<&Value>) -> bool {
        if !self.is_pinned {
            return true;
        }
        let allocation = "spec.serviceAllocation";
        let names = list(&self.object, &format!("{allocation}.namespaces"));
        let by_label = list(&self.object, &format!("{allocation}.namespaceSelectors"));
        let for_namespace = (names.is_empty() && by_label.is_empty())
            || names.iter().any(|name| name == namespace)
            || by_label
                .iter()
                .any(|selector| namespace_object.is_some_and(|object| selects(Some(selector), object)));
        let by_service = list(&self.object, &format!("{allocation}.serviceSelectors"));
        let for_service =
            by_service.is_empty() || by_service.iter().any(|selector| selects(Some(selector), service));
        for_namespace && for_service
    }

    pub(super) fn name(&self) -> &str {
        text(&self.object, "metadata.name")
    }
}

impl Range {
    /// Reads `a-b` or a CIDR; `None` when it makes no sense.
    fn parse(text: &str) -> Option<Self> {
        if let Some((first, last)) = text.split_once('-') {
            let first = numbered(first.trim().parse().ok()?);
            let last = numbered(last.trim().parse().ok()?);
            let range = Self {
                v6: first.0,
                first: first.1,
                last: last.1,
            };
            return (first.0 == last.0 && first.1 <= last.1).then_some(range);
        }
        let (base, bits) = text.trim().split_once('/')?;
        let (v6, number) = numbered(base.parse().ok()?);
        let (width, bits) = (if v6 { 128_u32 } else { 32 }, bits.parse::<u32>().ok()?);
        let host = width.checked_sub(bits)?;
        let mask = 1_u128.checked_shl(host).map_or(u128::MAX, |size| size - 1);
        Some(Self {
            v6,
            first: number & !mask,
            last: number | mask,
        })
    }
}

fn numbered(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (false, u128::from(u32::from(address))),
        IpAddr::V6(address) => (true, u128::from(address)),
    }
}

fn address(v6: bool, number: u128) -> IpAddr {
    if v6 {
        return IpAddr::V6(Ipv6Addr::from(number));
    }
    let [.., a, b, c, d] = number.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// Addresses that some firmware takes for a network or a broadcast.
fn is_buggy(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if matches!(address.octets(), [_, _, _, 0 | 255]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(addresses: &[&str], avoid: bool) -> Pool {
        Pool::parse(
            &json!({"metadata": {"name": "p"}, "spec": {"addresses": addresses, "avoidBuggyIPs": avoid}}),
        )
    }

    #[test]
    fn ranges_are_read_as_spans_and_as_blocks() {
        let spans = pool(
            &[
                "203.0.113.254-203.0.114.1",
                "2001:db8::/127",
                "nonsense",
                "9.9.9.9-1.1.1.1",
            ],
            false,
        );
        let given: Vec<String> = spans.candidates(false).map(|ip| ip.to_string()).collect();
        assert_eq!(
            given,
            ["203.0.113.254", "203.0.113.255", "203.0.114.0", "203.0.114.1"]
        );
        assert_eq!(spans.candidates(true).count(), 2);
        assert_eq!((spans.size(false), spans.size(true)), (4, 2));
    }

    #[test]
    fn buggy_addresses_are_avoided_when_asked() {
        let careful = pool(&["203.0.113.254-203.0.114.1"], true);
        let given: Vec<String> = careful.candidates(false).map(|ip| ip.to_string()).collect();
        assert_eq!(given, ["203.0.113.254", "203.0.114.1"]);
        assert_eq!(careful.size(false), 2);
        assert!(!careful.may_give("203.0.114.0".parse().unwrap()));
    }

    #[test]
    fn a_whole_ipv6_block_does_not_overflow() {
        assert_eq!(pool(&["::/0", "0.0.0.0/0"], false).size(true), i64::MAX);
    }
}

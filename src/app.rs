//! The composition root, in two phases: [`serve`] makes the ports (store, cluster, clock), then
//! [`Program::start`] makes bus and actors from them. Only here adapters are named.

mod face;
mod faults;
mod keeper;
pub mod logging;
mod program;
pub mod serve;
mod upkeep;

pub use face::Face;
pub use program::{Ingredients, Program};
pub use upkeep::{StoreUpkeep, report_of};

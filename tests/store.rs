//! The store on a real disk: processes that are killed, files that are cut and flipped, a week of churn.
//!
//! `FREEHOLD_SCALE=full` makes them as large as they should be once; the default is for every run.

#[cfg(test)]
#[path = "store/backups.rs"]
mod backups;
#[cfg(test)]
#[path = "store/churn.rs"]
mod churn;
#[cfg(test)]
#[path = "store/damage.rs"]
mod damage;
#[cfg(test)]
#[path = "store/kill.rs"]
mod kill;
#[cfg(test)]
#[path = "store/setting.rs"]
mod setting;
#[cfg(test)]
#[path = "store/start.rs"]
mod start;

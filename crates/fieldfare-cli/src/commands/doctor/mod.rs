//! x
use crate::Outcome;
use crate::args::DoctorArgs;
/// x
pub fn run(_: &DoctorArgs) -> Outcome {
    Ok(())
}

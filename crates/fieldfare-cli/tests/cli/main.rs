//! The command as people and scripts meet it: exit codes, what goes to which output, messages.

mod damage;
mod models;
mod owner;
mod support;
mod text;
mod usage;

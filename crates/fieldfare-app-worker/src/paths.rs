//! Where things lie.

use crate::message::Trouble;
use crate::trouble::trouble;
use fieldfare::sys::paths;
use std::path::{Path, PathBuf};

/// The folders of one person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Conversations, settings, the lock.
    pub data: PathBuf,
    /// Where models are looked for; a download goes into the first.
    pub models: Vec<PathBuf>,
}

impl Paths {
    /// The usual ones, under the person's data folder, shared with the command line as far as models go.
    ///
    /// # Errors
    /// There is no data folder (no home folder).
    pub fn of_system() -> Result<Self, Trouble> {
        let data = paths::data_dir().ok_or_else(|| Trouble {
            message: "There is no folder for your data: this account has no home folder.".to_owned(),
            remedy: "Set HOME, or XDG_DATA_HOME on Linux, to a folder of yours.".to_owned(),
        })?;
        let mut models = vec![data.join("models"), data.clone()];
        // Where the demonstration model may have had to go.
        models.extend(fieldfare_demo::folders());
        let mut seen = Vec::new();
        models.retain(|path| {
            !seen.contains(path) && {
                seen.push(path.clone());
                true
            }
        });
        Ok(Self { data: data.join("app"), models })
    }

    /// The database of conversations.
    pub(crate) fn library(&self) -> PathBuf {
        self.data.join("conversations.sqlite")
    }

    /// The window's settings.
    pub(crate) fn settings(&self) -> PathBuf {
        self.data.join("settings.json")
    }

    /// What was measured of this machine.
    pub(crate) fn machine(&self) -> PathBuf {
        self.data.join("machine.json")
    }
}

/// Makes the data folder, for its owner's eyes only.
///
/// # Errors
/// It cannot be made, or is somebody else's.
pub(crate) fn make_private(folder: &Path) -> Result<(), Trouble> {
    if let Some(above) = folder.parent() {
        std::fs::create_dir_all(above)
            .map_err(|error| trouble(&fieldfare::Error::io("create", above)(error)))?;
    }
    paths::private_dir(folder).map_err(|error| trouble(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_made_with_those_above_it_and_a_file_in_its_place_is_said() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("a/b/app");
        make_private(&folder).unwrap();
        make_private(&folder).unwrap();
        assert!(folder.is_dir());
        let file = temp.path().join("file");
        std::fs::write(&file, "").unwrap();
        let said = make_private(&file).unwrap_err();
        assert!(said.message.contains("is not a folder"), "{said:?}");
    }
}

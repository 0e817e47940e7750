"""`BackupAndRestore`: a training that was interrupted goes on from its last backup."""

from __future__ import annotations

import os
import stat

from graphcell.nn.checks import check_bool, positive_int
from graphcell.train.callback._callback import Callback, RunContext
from graphcell.train.directories import make_directory
from graphcell.train.serialization import load_checkpoint, save_checkpoint


class BackupAndRestore(Callback):
    """Saves the training network to `backup.ckpt` after epochs, and loads that file, where it is there, before training.

    Args:
        backup_dir: the directory; it is made if it is not there.
        save_freq: 'epoch', or the number of epochs from one backup to the next.
        delete_checkpoint: delete the file after training. Default True.

    Raises:
        TypeError, ValueError: arguments of the wrong kind.
    """

    def __init__(self, backup_dir: str, save_freq: int | str = "epoch", delete_checkpoint: bool = True):
        super().__init__()
        self.backup_file = os.path.join(make_directory(backup_dir), "backup.ckpt")
        self.save_freq = 1 if save_freq == "epoch" else positive_int("BackupAndRestore", "save_freq", save_freq)
        self.delete_checkpoint = check_bool("BackupAndRestore", "delete_checkpoint", delete_checkpoint)

    def on_train_begin(self, run_context: RunContext) -> None:
        """Loads the backup, if there is one."""
        if os.path.exists(self.backup_file):
            load_checkpoint(self.backup_file, net=run_context.original_args().train_network)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Saves the backup when it is time to."""
        run = run_context.original_args()
        if run.cur_epoch_num % self.save_freq == 0:
            save_checkpoint(run.train_network, self.backup_file)

    def on_train_end(self, run_context: RunContext) -> None:
        """Deletes the backup."""
        if self.delete_checkpoint and os.path.exists(self.backup_file):
            os.chmod(self.backup_file, stat.S_IWRITE)
            os.remove(self.backup_file)

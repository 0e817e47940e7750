"""What is set on a Cell for a run on several devices: checked and kept. It changes nothing on one CPU."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Self

from graphcell.common.checks import not_negative_int
from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingAttributeError


class _Numbered:
    """A number of at least 0; AttributeError as long as none was set.

    Raises:
        TypeError: set to no int. ValueError: set to a negative one.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, cell: Any, owner: type | None = None) -> Any:
        if cell is None:
            return self
        if self._name not in cell.__dict__["_devices"]:
            raise MissingAttributeError(f"The '{type(cell).__name__}' object has no attribute '{self._name}'.")
        return cell.__dict__["_devices"][self._name]

    def __set__(self, cell: Any, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ArgumentTypeError(f"For 'Cell', the property '{self._name}' must be int type, but got type : {type(value)}")
        if value < 0:
            raise ArgumentValueError(f"For 'Cell', the property '{self._name}' can not be less than 0, but got {value}")
        cell.__dict__["_devices"][self._name] = value


class DeviceSettings:
    """The part of a Cell that keeps settings for several devices."""

    def _start_device_settings(self) -> None:
        self.__dict__["_devices"] = {"layout": {}, "data_parallel": False, "strategy": None, "offload": None}

    pipeline_stage = _Numbered()
    pipeline_segment = _Numbered()

    # -- how Parameters are spread -----------------------------------------------------------------------------------
    @property
    def parameter_layout_dict(self) -> dict[str, Any]:
        """Name → how a Parameter is laid out over devices: empty, unless something was assigned.

        Raises:
            TypeError: assigned to with something that is no dict.
        """
        layout: dict[str, Any] = self.__dict__["_devices"]["layout"]
        return layout

    @parameter_layout_dict.setter
    def parameter_layout_dict(self, value: dict[str, Any]) -> None:
        if not isinstance(value, dict):
            raise ArgumentTypeError(
                f"For 'Cell', the property 'parameter_layout_dict' must be dict type, but got type {type(value)}."
            )
        self.__dict__["_devices"]["layout"] = value

    def parameters_broadcast_dict(self, recurse: bool = True) -> OrderedDict[str, Any] | None:
        """Name → Parameter of those that are the same on all devices (not `layerwise_parallel`); None if there are none."""
        params = self.get_parameters(recurse)  # type: ignore[attr-defined]
        return OrderedDict((p.name, p) for p in params if not p.layerwise_parallel) or None

    def set_broadcast_flag(self, mode: bool = True) -> Self:
        """Says whether the Parameters are to be sent to all devices at the start; returns this Cell."""
        self.add_flags_recursive(broadcast_flag=mode)  # type: ignore[attr-defined]
        return self

    def set_comm_fusion(self, fusion_type: int, recurse: bool = True) -> Self:
        """Sets `comm_fusion` of the trained Parameters; returns this Cell.

        Raises:
            TypeError: fusion_type is no int. ValueError: it is negative.
        """
        not_negative_int(fusion_type)
        for param in self.trainable_params(recurse):  # type: ignore[attr-defined]
            param.comm_fusion = fusion_type
        return self

    # -- how the computation is spread -------------------------------------------------------------------------------
    def set_data_parallel(self) -> None:
        """Asks for data parallelism where nothing else was asked for."""
        self.__dict__["_devices"]["data_parallel"] = True

    def shard(self, in_strategy: Any, out_strategy: Any = None, parameter_plan: Any = None) -> None:
        """Keeps how inputs, outputs and Parameters are to be split; outside of (semi-)auto-parallel mode, as here, nothing is."""
        self.__dict__["_devices"]["strategy"] = (in_strategy, out_strategy, parameter_plan)

    def offload(self, backward_prefetch: str | int = "Auto") -> None:
        """Asks that what the backward pass needs be moved from the device to the host meanwhile. On a CPU it is there already.

        Raises:
            TypeError: backward_prefetch is neither str nor int. ValueError: it is another str than 'Auto', or negative.
        """
        if isinstance(backward_prefetch, str):
            if backward_prefetch != "Auto":
                raise ArgumentValueError(
                    f"For '{type(self).__name__}', the 'backward_prefetch' must be str and must be in '['Auto']', but got '{backward_prefetch}'."
                )
        else:
            not_negative_int(backward_prefetch)
        self.__dict__["_devices"]["offload"] = backward_prefetch

    def set_boost(self, boost_type: str) -> Self:
        """Names an algorithm of MindSpore's boost library, of which there is none here: it becomes a flag of this Cell and all in it.

        Returns this Cell.

        Raises:
            ValueError: boost_type is not 'less_bn'.
        """
        if boost_type != "less_bn":
            raise ArgumentValueError(
                f"For 'set_boost', the argument 'boost_type' must be 'less_bn', but got {boost_type}."
            )
        self.add_flags_recursive(**{boost_type: True})  # type: ignore[attr-defined]
        return self

    def remove_redundant_parameters(self) -> None:
        """Does nothing on one device; deprecated."""
